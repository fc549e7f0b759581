"""Policy documents: their models, and loading them with errors that say file, line and field."""
