"""The command `spotgate webhook-config`."""
