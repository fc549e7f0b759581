"""Kubernetes' expression language (CEL).

Its library is an optional extra, ``pip install spotgate[cel]``, and is imported when the first expression is compiled.
"""

from __future__ import annotations

from functools import cache

from webhook.cel.protocol import (
    HAS_NUL,
    NOT_KNOWN,
    EvaluationError,
    Expression,
    ExpressionError,
    Language,
    MissingLibraryError,
    Values,
)

__all__ = [
    "HAS_NUL",
    "NOT_KNOWN",
    "EvaluationError",
    "Expression",
    "ExpressionError",
    "Language",
    "MissingLibraryError",
    "Values",
    "language",
]


@cache
def language() -> Language:
    """Return the language. Raise MissingLibraryError if its library is not installed."""
    try:
        from webhook.cel.library import CelCpp  # noqa: PLC0415 - 50 ms, and optional
    except ImportError as error:
        raise MissingLibraryError(f"needs an optional library ({error.name}): pip install 'spotgate[cel]'") from None
    return CelCpp()
