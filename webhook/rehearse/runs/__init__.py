"""Run a rehearsal: start a control plane with the cluster, simulate the reclaim, and compute the figures."""
