"""The policy kind ``Validation``."""
