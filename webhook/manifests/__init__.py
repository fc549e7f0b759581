"""Read Kubernetes objects from files, for ``check`` and for ``--state``."""
