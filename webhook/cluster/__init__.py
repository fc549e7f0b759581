"""What the rules may know of a cluster. Rules and engine see `webhook.cluster.protocol` alone."""
