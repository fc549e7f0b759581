"""The policy kind ``SpotSuitability``."""

from webhook.rules.spot_suitability.rule import KIND

__all__ = ["KIND"]
