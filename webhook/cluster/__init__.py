"""Read the state of a live cluster. Rules and the engine import `webhook.cluster.protocol` alone."""
