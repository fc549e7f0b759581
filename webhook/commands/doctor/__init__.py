"""Check a live installation. Each module has one group of checks. No check writes."""
