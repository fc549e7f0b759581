"""Start a real Kubernetes control plane on loopback, for rehearsals and tests. The webhook itself never starts one.

`binaries` and `images` get the programs; `process`, `servers.yaml`, and `credentials` start them; `control_plane`
manages the whole.
"""
