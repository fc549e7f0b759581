"""The policy kind ``NodePoolRules``."""

from webhook.rules.node_pool_rules.rule import KIND

__all__ = ["KIND"]
