"""Patches of the webhook, written into manifest files."""
