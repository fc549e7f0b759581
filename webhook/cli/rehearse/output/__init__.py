"""The formats of a rehearsal, a module each: `show(rehearsal)` prints it."""
