"""Processes with a shifted clock, using libfaketime if it is installed (Debian: `apt-get install libfaketime`)."""

from __future__ import annotations

from pathlib import Path


def faketime() -> Path | None:
    """Return the library to preload, or None if it isn't installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def other_clock(offset: str) -> list[str]:
    """Return a command prefix that shifts the clock, for example by `+1h`, but not the monotonic clock."""
    return ["/usr/bin/env", f"LD_PRELOAD={faketime()}", f"FAKETIME={offset}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
