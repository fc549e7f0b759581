"""Decide which Pods target spot, which nodes can run them, how to select the nodes, and how long Pods have to stop."""
