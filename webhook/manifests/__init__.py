"""Kubernetes objects from files: what ``check`` judges, and what ``--state`` describes a cluster with."""
