"""Exit codes of the commands, and the error that ends a command."""

from __future__ import annotations

from typing import Final

FINE: Final = 0
"""No findings that fail the run."""

FOUND: Final = 1
"""Findings that fail the run."""

CANNOT_JUDGE: Final = 2
"""Unreadable input or state, an invalid policy, or a wrong command line."""


class CannotJudgeError(Exception):
    """A problem that ends the command. The text goes to standard error; each line is ``file:line:column: ...``."""
