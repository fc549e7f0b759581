"""The policy kind ``SpotPlacement``."""

from webhook.rules.spot_placement.rule import KIND

__all__ = ["KIND"]
