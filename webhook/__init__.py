"""spotgate: an admission webhook and a command-line tool for Kubernetes workloads on spot capacity."""

__version__ = "0.1.0"
