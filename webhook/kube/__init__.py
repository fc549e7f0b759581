"""Kubernetes objects and semantics that the rules depend on.

Pods and their templates (`pod`, `templates`, `layouts`), the API server's defaults (`defaults`), and comparisons:
selectors, affinity, tolerations, quantities, and versions.
"""
