"""Read Kubernetes objects from files: as manifests to judge (`objects`), and as a cluster's state (`state`)."""
