"""The policy kind ``SpotSuitability``."""
