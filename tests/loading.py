"""Cache the shipped documents: tests load hundreds of bundles with the same providers and policies."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from webhook.engine import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from webhook.policy.document import PolicyDocument


def cache_shipped_documents() -> None:
    """Make later calls of `load_bundle` in this process take the shipped documents from a cache.

    They never change. Documents with problems and other documents are read each time.
    """
    read = vars(bundle)["load_documents"]
    known: dict[Any, list[PolicyDocument]] = {}

    @wraps(read)
    def load_documents(files: Sequence[Path], kinds: Mapping[str, Any], problems: list[Any]) -> list[PolicyDocument]:
        key = (*files, *kinds.items())
        if key not in known:
            before = len(problems)
            documents: list[PolicyDocument] = read(files, kinds, problems)
            if len(problems) > before or not all(file.is_relative_to(bundle.SHIPPED) for file in files):
                return documents
            known[key] = documents
        return list(known[key])

    vars(bundle)["load_documents"] = load_documents
