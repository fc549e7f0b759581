"""Judge manifests: read them, choose the cluster that they are judged against, and the project's settings."""
