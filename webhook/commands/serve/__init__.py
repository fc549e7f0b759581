"""The command `spotgate serve`."""
