"""Check the labels that control how CoreWeave evicts Pods: policy kind ``EvictionStrategy``."""
