"""spotgate: admission control for workloads on capacity that can vanish."""

__version__ = "0.1.0"
