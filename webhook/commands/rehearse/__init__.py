"""The command `spotgate rehearse`."""
