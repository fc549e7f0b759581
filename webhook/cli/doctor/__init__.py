"""Checks of a live installation, a module a group. None of them writes."""
