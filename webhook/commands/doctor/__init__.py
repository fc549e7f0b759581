"""Check a live installation, a module a group of checks. None of them writes."""
