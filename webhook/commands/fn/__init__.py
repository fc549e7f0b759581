"""The command `spotgate fn`."""
