"""Capacity providers, and the normalised node pool that each of their resources is read into."""
