"""Serve the operators' port of a replica, with its page."""
