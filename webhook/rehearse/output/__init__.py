"""Show a rehearsal in a format: a module for each, whose `show(rehearsal)` prints it."""
