"""The command `spotgate new`."""
