"""Find which Pods target spot, which nodes can run them, what selects those nodes, and how long they have to stop."""
