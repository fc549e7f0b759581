"""The timeline of a reclaim, and its drawing."""
