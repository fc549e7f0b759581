"""Export placement and termination as a MutatingAdmissionPolicy, for the node pools as they are."""
