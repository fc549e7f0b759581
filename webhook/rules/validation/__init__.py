"""Judge objects by a team's own CEL expressions: policy kind ``Validation``."""
