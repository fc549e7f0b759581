"""The command `spotgate replay`."""
