"""Read tests of policies, run them, compare what comes out with what they expect, and report it."""
