"""Run a process that lasts: log lines, limits, metrics, reload, recordings, and the ops port. No HTTP for reviews."""
