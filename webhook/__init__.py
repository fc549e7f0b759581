"""Judge workloads on capacity that can vanish, at admission and before: spotgate."""

__version__ = "0.1.0"
