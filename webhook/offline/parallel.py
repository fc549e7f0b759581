"""Work in forked processes, which inherit what this one has loaded, and send back results."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from webhook.base.exits import CannotJudgeError
from webhook.documents import DOCUMENT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from webhook.offline.manifests.files import ManifestFile

_Part = TypeVar("_Part")
_Common = TypeVar("_Common")
_Each = TypeVar("_Each")

WORTH: Final = 512 * 1024
"""Bytes of manifests that take as long as it takes to start a process, several times over."""

_SEPARATOR: Final = re.compile(rb"\n(?=---\r?\n)")
_JSON: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
_YAML_LINE_ENDS: Final = tuple(end.encode() for end in "\x85\u2028\u2029")

_Work: TypeAlias = "Callable[[_Part], Generator[Any, Any, None]]"
"""Work on a part, as a conversation: yield what others must know of it, be sent what follows, and yield the result."""


def in_processes(
    work: _Work[_Part], parts: Sequence[_Part], agree: Callable[[list[Any]], _Common]
) -> tuple[_Common, list[Any]]:
    """Work on each part, in as many processes as there are cores, and return the results in order.

    Every part stays in the process that has read it. Only what ``work`` yields leaves it: first what the parts tell
    each other, of which ``agree`` makes what all of them are sent and this function returns too, then the results. On a
    terminal a bar shows how many parts are done. Raise CannotJudgeError if a process was killed.
    """
    processes = min(len(os.sched_getaffinity(0)), len(parts)) if _can_fork() else 1
    if processes < 2:  # noqa: PLR2004
        working = [work(part) for part in parts]
        common = agree([next(each) for each in _shown(working, "reading", len(parts))])
        return common, [each.send(common) for each in _shown(working, "judging", len(parts))]
    from multiprocessing import get_context  # noqa: PLC0415 - for large inputs

    fork = get_context("fork")
    workers = {}
    try:
        for _ in range(processes):
            connection, theirs = fork.Pipe()
            workers[connection] = fork.Process(target=_work_on, args=(theirs, work, parts), daemon=True)
            workers[connection].start()
            theirs.close()
        waiting = iter(range(len(parts)))
        for connection in workers:
            connection.send(next(waiting))
        shares: dict[int, Any] = {}
        for connection, number, share in _shown(_answers(workers, len(parts)), "reading", len(parts)):
            shares[number] = share
            connection.send(next(waiting, None))
        common = agree([shares[number] for number in range(len(parts))])
        for connection in workers:
            connection.send(common)
        results = {number: each for _, number, each in _shown(_answers(workers, len(parts)), "judging", len(parts))}
    except (EOFError, ConnectionError):
        raise CannotJudgeError(
            "error: a process that judged some of the files ended before its time; is there too little memory?"
        ) from None
    finally:
        for process in workers.values():
            process.terminate()
    return common, [results[number] for number in range(len(parts))]


def _answers(workers: Iterable[Connection], count: int) -> Iterator[tuple[Connection, int, Any]]:
    """Yield as many answers as they come: from whom, on which part, and what. Raise what was raised there."""
    from multiprocessing.connection import wait  # noqa: PLC0415

    connections: list[Any] = list(workers)
    while count:
        connection: Any
        for connection in wait(connections):
            number, answer = connection.recv()
            if isinstance(answer, Exception):
                raise answer
            count -= 1
            yield connection, number, answer


def _work_on(connection: Connection, work: _Work[_Part], parts: Sequence[_Part]) -> None:
    """Work on the parts whose numbers come, until None does; then finish each of them with what comes after it."""
    from multiprocessing import parent_process  # noqa: PLC0415

    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all: one of them speaks
    parent: Any = parent_process()
    # A worker would wait for ever where the first process was killed.
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    try:
        kept = {}
        while (number := connection.recv()) is not None:
            kept[number] = work(parts[number])
            connection.send((number, next(kept[number])))
        common = connection.recv()
        for number in list(kept):
            connection.send((number, kept.pop(number).send(common)))
    except Exception as error:  # noqa: BLE001 - the first process raises it
        connection.send((-1, error))
    signal.pause()  # until the first process ends it: a closed connection would look like an early end


def _can_fork() -> bool:
    """Return whether this process can fork: not with threads, which a child lacks, and only on Linux."""
    return sys.platform == "linux" and threading.active_count() == 1


def _shown(results: Iterable[_Each], doing: str, total: int) -> Iterable[_Each]:
    """Return the same results, counted by a bar on standard error where that is a terminal."""
    if total < 2 or not sys.stderr.isatty():  # noqa: PLR2004
        return results
    from rich.console import Console  # noqa: PLC0415 - for those who wait
    from rich.progress import track  # noqa: PLC0415

    return track(results, doing, total=total, console=Console(stderr=True), transient=True)


def chunks_of(sources: Iterable[ManifestFile], *, cut: bool = True) -> list[list[ManifestFile]]:
    """Return the sources, in their order, in groups that are worth a process. Large files are cut if they may be."""
    chunks: list[list[ManifestFile]] = [[]]
    size = 0
    for source in sources:
        for part in _parts(source) if cut else (source,):
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
    """Return whether a file can be cut: YAML without directives, and with line ends that are easy to count.

    A file with too many documents stays whole, so that it is refused.
    """
    return not (
        data.count(b"\n---") > DOCUMENT_LIMITS.documents
        or _JSON.match(data)
        or data.startswith(b"%")
        or b"\n%" in data
        or data.count(b"\r") > data.count(b"\r\n")
        or any(end in data for end in _YAML_LINE_ENDS)
    )
