"""Helpers without Kubernetes types: text, globs, bounds, caches, and the terminal."""
