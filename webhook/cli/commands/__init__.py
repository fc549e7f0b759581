"""The commands: a module for each, which declares its flags, prints its results and returns the exit code."""
