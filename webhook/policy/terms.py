"""Words of policy files that more than their models need."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

API_VERSION: Final = "spotgate.dev/v1"

BREAK_GLASS: Final = "spotgate.dev/break-glass"
"""The annotation by which those whom a policy's ``breakGlass`` names override a denial; its value is the reason."""


class Enforcement(StrEnum):
    """What comes of a finding: deny the request, warn the user, only audit, or nothing (policy switched off)."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    OFF = "off"
