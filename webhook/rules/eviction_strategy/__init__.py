"""The policy kind ``EvictionStrategy``."""

from webhook.rules.eviction_strategy.rule import KIND

__all__ = ["KIND"]
