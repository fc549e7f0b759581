"""Keep on-demand capacity for every GPU spot pool to fall back on: policy kind ``OnDemandFallback``."""
