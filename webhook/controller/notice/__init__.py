"""Tell Pods of the reclaim of their Node: annotate them with its time, and evict those that ask for more time."""
