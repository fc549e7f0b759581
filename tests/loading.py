"""Cache the shipped documents and their bundle: tests load hundreds of bundles with the same providers and policies."""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

from webhook.engine import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from webhook.engine.bundle import Bundle
    from webhook.policy.document import PolicyDocument


def cache_shipped_documents() -> None:
    """Make later calls of `load_bundle` in this process take the shipped documents, and a bundle of only these, from a cache.

    They never change. Documents with problems and other documents are read each time.
    """
    read, compile_ = vars(bundle)["load_documents"], vars(bundle)["_bundle"]
    bundles: dict[Any, Bundle] = {}
    known: dict[Any, list[PolicyDocument]] = {}

    @wraps(read)
    def load_documents(
        files: Sequence[Path], kinds: Mapping[str, Any], problems: list[Any], *, trusted: bool = False
    ) -> list[PolicyDocument]:
        key = (*files, *kinds.items(), trusted)
        if key not in known:
            before = len(problems)
            documents: list[PolicyDocument] = read(files, kinds, problems, trusted=trusted)
            if len(problems) > before or not all(file.is_relative_to(bundle.SHIPPED) for file in files):
                return documents
            known[key] = documents
        return list(known[key])

    @wraps(compile_)
    def compile_documents(documents: Sequence[PolicyDocument], *names: str) -> Bundle:
        key = (*map(id, documents), *names, os.environ.get("POD_NAMESPACE"))
        if key in bundles:
            return bundles[key]
        compiled: Bundle = compile_(documents, *names)
        if not compiled.own:  # other documents are freed, and then their ids name others
            bundles[key] = compiled
        return compiled

    vars(bundle).update(load_documents=load_documents, _bundle=compile_documents)
