"""Issue, verify, and rotate the webhook's certificates: a long-lived CA, short-lived leaves, and the caBundle.

A pair passes through these modules: `files` or `authority` (its source), `verify` (its checks), and `context` (the TLS
context that serves it). Nothing here reads a clock.
"""
