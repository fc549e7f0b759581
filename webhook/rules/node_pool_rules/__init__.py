"""Check node pools against the provider's schema and best practices for spot: policy kind ``NodePoolRules``."""
