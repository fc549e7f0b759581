"""Read the inputs of a rehearsal: the cluster, from manifests or a live API server, and the Nodes to lose."""
