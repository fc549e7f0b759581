"""Compile, check, and evaluate expressions in CEL, the expression language of Kubernetes.

The CEL library is imported when the first expression is compiled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webhook.cel.library import Language


@cache
def language() -> Language:
    """Return the language. The first call imports its library."""
    from webhook.cel.library import Language  # noqa: PLC0415 - takes 50 ms, and only some policies have expressions

    return Language()
