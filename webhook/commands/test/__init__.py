"""Read policy tests, run them, compare the results with the expectations, and report the differences."""
