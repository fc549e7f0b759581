"""Serve the webhook over HTTP. This package contains no rules: `webhook.engine.engine` decides on each review."""
