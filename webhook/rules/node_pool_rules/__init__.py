"""Check node pools: what their provider accepts, what a spot pool should be: policy kind ``NodePoolRules``."""
