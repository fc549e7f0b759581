"""Kubernetes' own objects and semantics, as far as the rules read them.

Pods and the fields that hold their templates (`pod`, `templates`, `layouts`), what the API server fills in
(`defaults`), and how it compares: selectors, affinity, tolerations, quantities, versions.
"""
