"""Rehearse a reclaim: what happens to the workloads of a cluster when nodes go, told by the real scheduler."""
