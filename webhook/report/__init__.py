"""Report findings with their places, and explain judgements."""
