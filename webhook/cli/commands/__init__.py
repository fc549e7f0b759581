"""The commands: a module each, which declares the flags and turns what comes of them into an exit code."""
