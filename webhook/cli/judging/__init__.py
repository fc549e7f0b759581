"""Judging sessions: the manifests, the cluster that they are judged against, and the project's settings."""
