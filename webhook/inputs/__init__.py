"""Read what to evaluate: files, rendered charts, Git's previous versions, a state, and the project file."""
