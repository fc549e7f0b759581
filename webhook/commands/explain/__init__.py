"""Explain what each policy does to an object and why, and what a reclaim does to its Pods."""
