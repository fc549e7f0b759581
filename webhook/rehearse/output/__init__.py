"""Print a rehearsal. Each module implements one format, with a function `show(rehearsal)`."""
