"""Fit grace periods into the time that a reclaim allows: policy kind ``GracefulTermination``."""
