"""Maintain the on-demand floor of ReplicaSets: one leader counts their Pods and assigns each gated Pod."""
