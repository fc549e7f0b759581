"""Replay: recorded reviews judged again by other policies."""
