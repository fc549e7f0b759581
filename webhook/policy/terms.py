"""Terms of policy files that other modules than the models also use."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

API_VERSION: Final = "spotgate.dev/v1"

BREAK_GLASS: Final = "spotgate.dev/break-glass"
"""The annotation with which the groups in a policy's ``breakGlass`` override a denial. Its value is the reason."""


class Enforcement(StrEnum):
    """The strongest outcome of a policy's findings. With `off`, the policy isn't in force."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    OFF = "off"
