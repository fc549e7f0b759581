"""Check the labels by which CoreWeave evicts Pods: policy kind ``EvictionStrategy``."""
