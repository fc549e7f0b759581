"""The policy kind ``OnDemandFallback``."""
