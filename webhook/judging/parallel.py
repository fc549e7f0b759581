"""Run work in forked processes, which inherit the loaded modules and policies and return their results."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from webhook.base.exits import CannotJudgeError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.connection import Connection

    from webhook.inputs.files import ManifestFile

_Common = TypeVar("_Common")
_Share: TypeAlias = "list[ManifestFile]"
_Work: TypeAlias = "Generator[Any, Any, None]"
"""A share's work as a conversation: yield the data for the other shares, receive the merged data, yield the result."""

BYTES_PER_PROCESS: Final = 512 * 1024
"""The bytes of manifests that take several times as long as starting a process."""


def shares_of(sources: Sequence[ManifestFile], *, split: bool) -> list[_Share]:
    """Divide the sources into shares of similar size for the cores, or return a single share if there is no gain.

    With ``split``, also divide large files. A process with threads can't fork, because the child lacks them, and only
    Linux forks safely.
    """
    size = sum(source.size for source in sources)
    can_fork = sys.platform == "linux" and threading.active_count() == 1
    count = min(len(os.sched_getaffinity(0)), size // BYTES_PER_PROCESS) if can_fork else 0
    if count == 0:
        return [list(sources)]
    shares: list[_Share] = [[] for _ in range(count)]
    middle = 0.0
    parts = [source.split(-(-source.size * count // size)) if split else [source] for source in sources]
    for source in chain.from_iterable(parts):
        middle += source.size / 2
        shares[min(int(middle * count / size), count - 1)].append(source)
        middle += source.size / 2
    return [share for share in shares if share]


def in_processes(
    work: Callable[[_Share], _Work], shares: Sequence[_Share], agree: Callable[[list[Any]], _Common]
) -> tuple[_Common, list[Any]]:
    """Run each share's work in a separate process. Return the merged data, and the results in order.

    Objects stay in the process that read them. ``work`` first yields the data for the other shares, which ``agree``
    merges for all processes. Then ``work`` yields the result. Raise CannotJudgeError if a process dies.
    """
    from multiprocessing import get_context

    fork = get_context("fork")
    workers = []
    try:
        for share in shares:
            connection, child_end = fork.Pipe()
            process = fork.Process(target=_work, args=(child_end, work(share)), daemon=True)
            process.start()
            child_end.close()
            workers.append((connection, process))
        common = agree([connection.recv() for connection, _ in workers])
        for connection, _ in workers:
            connection.send(common)
        return common, [connection.recv() for connection, _ in workers]
    except (EOFError, ConnectionError):
        raise CannotJudgeError(
            "error: a process that evaluated some of the files ended early; it may have run out of memory"
        ) from None
    finally:
        for _, process in workers:
            process.terminate()


def _work(connection: Connection, work: _Work) -> None:
    """Run a share's work in a new process."""
    from multiprocessing import parent_process

    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all processes; the parent reports it
    parent: Any = parent_process()
    # Otherwise a worker would wait forever after its parent is killed.
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    connection.send(next(work))
    connection.send(work.send(connection.recv()))
    signal.pause()  # until the parent terminates this process: closing the connection would look like a crash
