"""Serve the webhook over HTTP. No rule is known here: `webhook.engine.engine` decides what is answered to a review."""
