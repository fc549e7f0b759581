"""Work in forked processes, which inherit what this one has loaded, and send back results."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from webhook.cli.exits import CannotJudgeError
from webhook.documents import DOCUMENT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from webhook.manifests.files import ManifestFile

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

WORTH: Final = 512 * 1024
"""Bytes of manifests that take as long as it takes to start a process, several times over."""

_SEPARATOR: Final = re.compile(rb"\n(?=---\r?\n)")
_JSON: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
_YAML_LINE_ENDS: Final = tuple(end.encode() for end in "\x85\u2028\u2029")

_inherited: list[Callable[[int], Any]] = []
"""The work of a forked process on the number of a part. It is inherited with the memory, and not pickled."""


def in_processes(work: Callable[[_Part], _Result], parts: Sequence[_Part], doing: str) -> list[_Result]:
    """Return the result of ``work`` for each part, in order. On a terminal a bar shows how many are done.

    ``work`` runs in as many processes as there are cores, and its results are pickled; one part alone starts no
    process. ``doing`` names the work for people. Raise CannotJudgeError if a process was killed.
    """
    processes = min(len(os.sched_getaffinity(0)), len(parts)) if _can_fork() else 1
    if processes < 2:  # noqa: PLR2004
        return list(_shown(map(work, parts), doing, len(parts)))
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor  # noqa: PLC0415 - for large inputs
    from multiprocessing import get_context  # noqa: PLC0415

    def work_on(number: int) -> _Result:
        return work(parts[number])

    try:
        with ProcessPoolExecutor(processes, get_context("fork"), _begin, (work_on,)) as pool:
            return list(_shown(pool.map(_work_on, range(len(parts))), doing, len(parts)))
    except BrokenProcessPool:
        raise CannotJudgeError(
            "error: a process that judged some of the files ended before its time; is there too little memory?"
        ) from None


def _can_fork() -> bool:
    """Return whether this process can fork: not with threads, which a child lacks, and only on Linux."""
    return sys.platform == "linux" and threading.active_count() == 1


def _begin(work_on: Callable[[int], Any]) -> None:
    from multiprocessing import parent_process  # noqa: PLC0415

    _inherited[:] = [work_on]
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all: one of them speaks
    parent: Any = parent_process()
    # A worker would wait for its next part for ever where the first process was killed.
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _work_on(number: int) -> Any:  # noqa: ANN401 - whatever the work makes
    return _inherited[0](number)


def _shown(results: Iterable[_Result], doing: str, total: int) -> Iterable[_Result]:
    """Return the same results, counted by a bar on standard error where that is a terminal."""
    if total < 2 or not sys.stderr.isatty():  # noqa: PLR2004
        return results
    from rich.console import Console  # noqa: PLC0415 - for those who wait
    from rich.progress import track  # noqa: PLC0415

    return track(results, doing, total=total, console=Console(stderr=True), transient=True)


def chunks_of(sources: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
    """Return the sources, in their order, in groups that are worth a process. Large files are cut."""
    chunks: list[list[ManifestFile]] = [[]]
    size = 0
    for source in sources:
        for part in _parts(source):
            if size >= WORTH:
                chunks.append([])
                size = 0
            chunks[-1].append(part)
            size += part.size
    return chunks


def _parts(source: ManifestFile) -> Iterator[ManifestFile]:
    """Yield the file, cut between documents if it is large and its parts can be read one by one."""
    if source.size <= WORTH or source.size > DOCUMENT_LIMITS.size:
        yield source
        return
    whole = source.taken_in()
    data = whole.data or b""
    if not _is_divisible(data) or not _SEPARATOR.search(data, WORTH):
        yield whole
        return
    line = start = begin = 0
    while start < len(data):
        cut = _SEPARATOR.search(data, start + WORTH)
        end = cut.end() if cut else len(data)
        part = data[start:end]
        yield replace(source, size=len(part), data=part, whole=False, line=line, begin=begin)
        line += part.count(b"\n")
        begin += len(part.decode("utf-8-sig", errors="replace"))
        start = end


def _is_divisible(data: bytes) -> bool:
    """Return whether a file can be cut: YAML without directives, and with line ends that are easy to count."""
    return not (
        _JSON.match(data)
        or data.startswith(b"%")
        or b"\n%" in data
        or data.count(b"\r") > data.count(b"\r\n")
        or any(end in data for end in _YAML_LINE_ENDS)
    )
