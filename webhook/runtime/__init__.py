"""Run a process that lasts: log lines, limits, metrics, reload, recordings, the operators' port. No HTTP for reviews."""
