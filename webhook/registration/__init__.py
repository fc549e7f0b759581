"""The webhook configurations of a bundle, and their differences from those of a cluster."""
