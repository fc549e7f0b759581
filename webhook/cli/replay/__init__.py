"""Recorded reviews, judged again by other policies."""
