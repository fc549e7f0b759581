"""The report of ``check`` and its formats: a module for each format, with ``render(report) -> str``."""
