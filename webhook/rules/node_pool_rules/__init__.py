"""The policy kind ``NodePoolRules``."""
