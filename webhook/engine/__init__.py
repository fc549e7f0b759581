"""The engine: policies compiled and indexed, and one pure function that decides on a request."""
