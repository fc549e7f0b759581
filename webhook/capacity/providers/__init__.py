"""Read the documents of capacity providers, and each node-pool resource into the normalised pool."""
