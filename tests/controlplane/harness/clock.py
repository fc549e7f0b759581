"""Processes with another clock, by libfaketime where that is installed (Debian: `apt-get install libfaketime`)."""

from __future__ import annotations

from pathlib import Path


def faketime() -> Path | None:
    """Return the library that is to be preloaded, or None if it is not installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def other_clock(offset: str) -> list[str]:
    """Return what to put before a command to have its clock off, by such as `+1h`; how fast time passes stays right."""
    return ["/usr/bin/env", f"LD_PRELOAD={faketime()}", f"FAKETIME={offset}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
