"""Fit grace periods into the time that a reclaim leaves: policy kind ``GracefulTermination``."""
