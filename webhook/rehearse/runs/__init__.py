"""Run a rehearsal: a control plane that holds the cluster, the reclaim on it, and the figures of what it did."""
