"""The command `spotgate controller`."""
