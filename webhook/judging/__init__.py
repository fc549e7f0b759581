"""Evaluate manifests without an API server: with the state of files or of a live cluster, in several processes."""
