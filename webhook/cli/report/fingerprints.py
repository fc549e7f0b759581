"""Fingerprints, by which platforms recognize a finding after lines have moved."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from webhook.cli.report.repository import repository_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.cli.report.model import Result


def fingerprints(results: Sequence[Result]) -> Iterator[str]:
    """Yield a fingerprint for each result: unique, and independent of lines and wordings."""
    paths = repository_paths(result.file for result in results)
    seen: dict[str, int] = {}
    for result in results:
        thing = f"{result.api_version} {result.kind} {result.namespace}/{result.name}"
        identity = f"{result.policy}\n{result.id}\n{paths[result.file]}\n{thing}\n{result.field}"
        seen[identity] = seen.get(identity, 0) + 1
        yield hashlib.sha256(f"{identity}\n{seen[identity]}".encode()).hexdigest()[:32]
