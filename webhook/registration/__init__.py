"""What the API server asks the webhook about: its configurations, and how those of a cluster differ from them."""
