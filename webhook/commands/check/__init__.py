"""The command `spotgate check`."""
