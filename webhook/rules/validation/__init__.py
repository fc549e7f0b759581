"""Evaluate a team's own CEL expressions on objects: policy kind ``Validation``."""
