"""Read the state of a live cluster. Rules and the engine import `webhook.capacity.view` alone."""
