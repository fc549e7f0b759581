"""Read the state of a live cluster. Rules and the engine import only `webhook.capacity.view`."""
