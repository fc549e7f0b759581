"""The command `spotgate fix`."""
