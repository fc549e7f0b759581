"""Model and load policy documents, with errors that say file, line and field; also what kinds have in common."""
