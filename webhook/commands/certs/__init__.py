"""The command `spotgate certs`."""
