"""The policy kind ``GracefulTermination``."""
