"""Many manifests in several processes: each reads a share and keeps it, then judges it by what all have seen."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.cli.exits import CannotJudgeError
from webhook.cli.inputs import Court
from webhook.cluster.manifests import Manifests
from webhook.documents import LIMITS, DocumentError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from webhook.bundle import Bundle
    from webhook.cli.inputs import Judged
    from webhook.cli.progress import Progress
    from webhook.cluster.manifests import Manifest
    from webhook.cluster.sources import Source
    from webhook.policy.errors import Problem

Report = TypeVar("Report")
Kept = TypeVar("Kept")
Seen = TypeVar("Seen")
Answer = TypeVar("Answer")

WORTH: Final = 512 * 1024
"""Bytes of manifests that take as long as it takes to start a process, several times over."""

_SEPARATOR: Final = re.compile(rb"\n(?=---\r?\n)")
_JSON: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
_YAML_LINE_ENDS: Final = tuple(end.encode() for end in "\x85\u2028\u2029")


class Reported(msgspec.Struct, Generic[Report], frozen=True):
    """What is reported of the manifests.

    Attributes:
        reports: of each object, in the order of the files.
        problems, skipped: as in `Judged`.
    """

    bundle: Bundle
    reports: list[Report]
    problems: list[Problem]
    skipped: int


class _Seen(msgspec.Struct, frozen=True):
    """What a process tells the others of its share.

    Attributes:
        facts: the objects that describe the cluster.
        unread: something in it can't be read.
        whole: false if that is a part of a file.
    """

    facts: list[Manifest]
    unread: bool
    whole: bool = True


def judge_each(
    options: Namespace, report: Callable[[Judged], list[Report]], *, trace: bool = False
) -> Reported[Report]:
    """What `judge` finds, in several processes where it is much: these keep the objects, and hand on the reports.

    Args:
        options, trace: as for `judge`.
        report: what is wanted of each object.

    Raises:
        CannotJudgeError: the policies, or the flags, are wrong; or a process ended before its time.
    """
    court = Court(options, trace=trace)
    shares = shares_of(court.sources) if court.is_divisible() else []
    if len(shares) < 2:  # noqa: PLR2004
        return _reported(court.judge_alone(), report)

    def see(share: Iterable[Source]) -> tuple[Manifests, _Seen]:
        found = Manifests()
        try:
            court.read(share, found)
        except DocumentError:
            return found, _Seen([], unread=True, whole=False)
        return found, _Seen(court.facts(found.objects), unread=bool(found.problems))

    def judge_share(found: Manifests, seen: list[_Seen]) -> Reported[Report] | None:
        if not all(each.whole for each in seen):
            return None
        facts = [fact for each in seen for fact in each.facts]
        return _reported(court.judge(found, facts, unread=any(each.unread for each in seen)), report)

    parts = [part for part in in_processes(shares, see, judge_share, court.progress) if part is not None]
    if not parts:  # A large file is broken, and what is wrong with it must be told of the whole file.
        return _reported(court.judge_alone(), report)
    return Reported(
        court.bundle,
        [each for part in parts for each in part.reports],
        [*court.problems, *(problem for part in parts for problem in part.problems)],
        court.skipped + sum(part.skipped for part in parts),
    )


def _reported(judged: Judged, report: Callable[[Judged], list[Report]]) -> Reported[Report]:
    return Reported(judged.bundle, report(judged), judged.problems, judged.skipped)


def shares_of(sources: Sequence[Source]) -> list[list[Source]]:
    """The sources, in their order, in as many shares as there are processes worth starting; large files are cut.

    One share where the system has no safe way to hand a process what this one has.
    """
    total = sum(source.size for source in sources)
    count = min(len(os.sched_getaffinity(0)), total // WORTH) if _can_fork() else 1
    if count < 2:  # noqa: PLR2004
        return [list(sources)]
    shares: list[list[Source]] = [[] for _ in range(count)]
    before = 0
    for source in sources:
        for part in _parts(source):
            shares[(before + part.size // 2) * count // (total + 1)].append(part)
            before += part.size
    return [share for share in shares if share]


def _can_fork() -> bool:
    """Not with threads, which a child has no part of; and only Linux's own libraries bear it."""
    return sys.platform == "linux" and threading.active_count() == 1


def _parts(source: Source) -> Iterator[Source]:
    """The file, cut between documents where it is large, and where the parts can be read as the whole would be."""
    if source.size <= WORTH or source.size > LIMITS.size:
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
    """YAML without directives, which stand before the document that they are for, and with lines easy to count."""
    return not (
        _JSON.match(data)
        or data.startswith(b"%")
        or b"\n%" in data
        or data.count(b"\r") > data.count(b"\r\n")
        or any(end in data for end in _YAML_LINE_ENDS)
    )


def in_processes(
    shares: Sequence[list[Source]],
    see: Callable[[list[Source]], tuple[Kept, Seen]],
    judge: Callable[[Kept, list[Seen]], Answer],
    progress: Progress,
) -> list[Answer]:
    """Let a process for each share see it, then judge what it kept of it by what all have seen.

    Args:
        shares: one for each process.
        see: what the process keeps, and what the others are told; that is pickled.
        judge: what has been kept, and what every process saw, in the order of the shares. The answer is pickled.
        progress: of reading and judging.

    Returns:
        The answers, in the order of the shares.

    Raises:
        CannotJudgeError: a process ended before its time.
    """
    import multiprocessing  # noqa: PLC0415 - most inputs are small

    context = multiprocessing.get_context("fork")
    links: list[Connection] = []
    processes: list[BaseProcess] = []

    def work(number: int, share: list[Source], link: Connection) -> None:
        progress.go_on_in(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all: one of them speaks
        for other in links:
            other.close()  # or nobody would see that the first process is gone
        gc.disable()
        try:
            kept, seen = see(share)
            link.send(seen)
            link.send(judge(kept, link.recv()))
        except (EOFError, ConnectionError):
            pass

    try:
        progress.start(sum(map(len, shares)), processes=len(shares))
        for number, share in enumerate(shares):
            ours, theirs = context.Pipe()
            links.append(ours)
            processes.append(context.Process(target=work, args=(number, share, theirs), daemon=True))
            processes[-1].start()
            theirs.close()
        seen = [progress.wait(link).recv() for link in links]
        for link in links:
            link.send(seen)
        return [progress.wait(link).recv() for link in links]
    except (EOFError, ConnectionError):
        raise CannotJudgeError(
            "error: a process that judged some of the files ended before its time; is there too little memory?"
        ) from None
    finally:
        progress.close()
        for link in links:
            link.close()
        for process in processes:
            process.terminate()
            process.join()
