"""Take what is rehearsed: the cluster from manifests or a live API server, and what it is to lose."""
