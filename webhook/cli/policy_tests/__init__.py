"""Tests of policies: read, run, compared with what they expect, and reported."""
