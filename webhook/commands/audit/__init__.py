"""Evaluate the objects of a live cluster as if they were created now."""
