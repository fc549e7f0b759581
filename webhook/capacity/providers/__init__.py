"""Capacity providers: their documents, and the normalised pool that each node-pool resource is read into."""
