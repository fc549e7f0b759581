"""The policy kind ``ReservedLabels``."""
