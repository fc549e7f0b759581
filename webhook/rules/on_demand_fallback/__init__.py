"""Require an on-demand fallback for every GPU spot pool: policy kind ``OnDemandFallback``."""
