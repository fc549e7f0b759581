"""A real Kubernetes control plane on loopback, for rehearsals and tests; the webhook itself never starts one."""
