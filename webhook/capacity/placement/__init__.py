"""Placement: which Pods target spot, where they can land, what selects those nodes, and how long they have to stop."""
