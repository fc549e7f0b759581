"""Evaluate manifests: read them, choose the cluster to evaluate them against, and apply the project's settings."""
