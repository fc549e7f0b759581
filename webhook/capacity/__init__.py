"""Read capacity providers and their node pools, and place Pods on spot capacity."""
