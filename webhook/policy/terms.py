"""Define words of policy files that are used beyond their models."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

API_VERSION: Final = "spotgate.dev/v1"

BREAK_GLASS: Final = "spotgate.dev/break-glass"
"""The annotation by which the groups in a policy's ``breakGlass`` override a denial; its value is the reason."""


class Enforcement(StrEnum):
    """Name what comes of a finding: deny the request, warn the user, only audit, or nothing (policy switched off)."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    OFF = "off"
