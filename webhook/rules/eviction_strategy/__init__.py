"""The policy kind ``EvictionStrategy``."""
