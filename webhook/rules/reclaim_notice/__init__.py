"""Give Pods the deadline of their node: policy kind ``ReclaimNotice``."""
