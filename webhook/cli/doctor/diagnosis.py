"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Hold the result of one check.

    Attributes:
        state: `unknown` if it could not be found out.
        what: what is so, in one line.
        fix: what to do about it; empty if nothing is to be done.
    """

    name: str
    state: State
    what: str
    fix: str = ""


def unread(name: str, error: Exception) -> Diagnosis:
    """Return the result of a check for which something can't be read."""
    return Diagnosis(name, "unknown", str(error), "allow it, or try again: see docs/cli/doctor.md")
