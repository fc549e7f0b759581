"""Compile, check and evaluate Kubernetes' expression language (CEL).

Its library is imported when the first expression is compiled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webhook.cel.library import Language


@cache
def language() -> Language:
    """Return the language, whose library is imported now."""
    from webhook.cel.library import Language  # noqa: PLC0415 - 50 ms that only policies with expressions take

    return Language()
