"""What is judged, against what, and by whom: manifests, the state of a cluster, and the project's settings."""
