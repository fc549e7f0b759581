"""Compile, check and evaluate Kubernetes' expression language (CEL).

Its library is an optional extra, ``pip install spotgate[cel]``, and is imported when the first expression is compiled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from webhook.cel.errors import MissingLibraryError

if TYPE_CHECKING:
    from webhook.cel.library import Language


@cache
def language() -> Language:
    """Return the language. Raise MissingLibraryError if its library is not installed."""
    try:
        from webhook.cel.library import Language  # noqa: PLC0415 - 50 ms, and optional
    except ImportError as error:
        raise MissingLibraryError(f"needs an optional library ({error.name}): pip install 'spotgate[cel]'") from None
    return Language()
