"""How a command ends."""

from __future__ import annotations

from typing import Final

FINE: Final = 0
"""Nothing was found at or above what fails."""

FOUND: Final = 1
"""Findings at or above what fails."""

CANNOT_JUDGE: Final = 2
"""Unreadable input or state, an invalid policy, a wrong command line."""


class CannotJudgeError(Exception):
    """The command can't go on. The text is for standard error, ``file:line:column: ...`` on each line."""
