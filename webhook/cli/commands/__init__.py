"""Run a command: a module for each declares its flags, prints its results and returns the exit code."""
