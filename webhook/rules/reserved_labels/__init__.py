"""The policy kind ``ReservedLabels``."""

from webhook.rules.reserved_labels.rule import KIND

__all__ = ["KIND"]
