"""The policy kind ``SpotPlacement``."""
