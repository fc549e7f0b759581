"""Placement and graceful termination as a MutatingAdmissionPolicy, for the node pools as they are."""
