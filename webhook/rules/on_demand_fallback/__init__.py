"""The policy kind ``OnDemandFallback``."""

from webhook.rules.on_demand_fallback.rule import KIND

__all__ = ["KIND"]
