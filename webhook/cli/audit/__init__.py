"""The objects of a live cluster, judged as if they were created now."""
