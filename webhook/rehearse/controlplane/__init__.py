"""Start a real Kubernetes control plane on loopback, for rehearsals and tests; the webhook itself never starts one.

Get its programs (`binaries`, `images`), start them (`process`, `servers`, `credentials`), and hold them together
(`control_plane`).
"""
