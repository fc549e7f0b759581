"""Rehearse a reclaim: run the real Kubernetes control plane to see what a cluster's workloads do when nodes go away."""
