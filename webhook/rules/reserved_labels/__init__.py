"""Reject users' labels in the platform's domains: policy kind ``ReservedLabels``.

`own` finds spotgate keys without effect. `namespaces` finds Namespaces that claim to belong to a provider.
"""
