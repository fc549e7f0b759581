"""Files that policy tests read, watched for changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.policy.document import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

_STDOUT: Final = 1
_QUIET: Final = 200
"""Milliseconds without another change: editors write several files, one after another."""


def changes(paths: Sequence[Path]) -> Iterator[None]:
    """Yield whenever files in these folders, or these files, have changed."""
    from watchfiles import watch  # noqa: PLC0415 - for few

    # What is named might be replaced and not changed: its folder is watched.
    folders = {path if path.is_dir() else path.parent for path in paths}
    named = frozenset(map(os.path.realpath, paths))
    for _ in watch(*folders, step=_QUIET, watch_filter=lambda _, path: _is_read(path, named)):
        yield


def _is_read(path: str, named: Container[str]) -> bool:
    """Return whether the file may be read; standard output, in the same folder, would run the tests for ever."""
    if not path.lower().endswith(SUFFIXES):
        return os.path.realpath(path) in named
    try:
        return not os.path.samestat(Path(path).stat(), os.fstat(_STDOUT))
    except OSError:  # it is gone
        return True
