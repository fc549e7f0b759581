"""Keep users' labels out of the platform's domains: policy kind ``ReservedLabels``.

`own` finds spotgate's own keys where they have no effect, `namespaces` finds Namespaces that claim to be
a provider's.
"""
