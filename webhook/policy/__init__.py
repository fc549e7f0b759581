"""Models and loading of policy documents, with errors that include file, line, and field."""
