"""The policy kind ``Validation``."""

from webhook.rules.validation.rule import KIND

__all__ = ["KIND"]
