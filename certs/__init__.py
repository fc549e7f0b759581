"""Issue, verify and rotate the webhook's certificates: a long-lived CA, short-lived leaves, and the caBundle.

A pair's way to the socket, each step a module: `files` or `authority` (where it comes from), `verify`
(may it be used?), `context` (what the server serves with). Nothing here reads a clock.
"""
