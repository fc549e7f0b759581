"""Serve the webhook over HTTP. This package knows no rules: `webhook.engine.engine` decides on each review."""
