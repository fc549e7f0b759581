"""Run a process that lasts: log lines, limits, reload, recordings, and the operators' port. No HTTP for reviews."""
