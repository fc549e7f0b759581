"""The command `spotgate schema`."""
