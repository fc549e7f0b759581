"""Kubernetes' own objects and semantics, as far as the rules read them."""
