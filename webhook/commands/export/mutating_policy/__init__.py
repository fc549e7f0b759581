"""Export placement and termination as a MutatingAdmissionPolicy for the current node pools."""
