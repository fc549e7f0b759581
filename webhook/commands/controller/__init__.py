"""``spotgate controller``."""
