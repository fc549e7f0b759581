"""Explain why each policy acts on an object, and what a reclaim does to its Pods."""
