"""Read Kubernetes objects from files, as manifests to evaluate (`objects`) or as a cluster's state (`state`)."""
