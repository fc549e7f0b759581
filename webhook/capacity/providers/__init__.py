"""Read the documents of capacity providers, and read node-pool resources into the normalized pool."""
