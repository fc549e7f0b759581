"""The policy kind ``GracefulTermination``."""

from webhook.rules.graceful_termination.rule import KIND

__all__ = ["KIND"]
