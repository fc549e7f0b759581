"""The command `spotgate review`."""
