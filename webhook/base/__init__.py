"""Text, globs, bounds, caches, and the terminal: what needs no Kubernetes."""
