"""Work in forked processes, which inherit what this one has loaded, and send back results."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from webhook.base.exits import CannotJudgeError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.connection import Connection

    from webhook.offline.manifests.files import ManifestFile

_Common = TypeVar("_Common")
_Share: TypeAlias = "list[ManifestFile]"
_Work: TypeAlias = "Generator[Any, Any, None]"
"""Work on a share, as a conversation: yield what others must know of it, be sent what follows, and yield the result."""

BYTES_PER_PROCESS: Final = 512 * 1024
"""Bytes of manifests that take as long as it takes to start a process, several times over."""


def shares_of(sources: Sequence[ManifestFile]) -> list[_Share]:
    """Return the sources, in their order, as a share of about as many bytes for each core, if that is worth it.

    A process with threads can't fork, because a child lacks them; and only Linux forks safely.
    """
    size = sum(source.size for source in sources)
    can_fork = sys.platform == "linux" and threading.active_count() == 1
    count = min(len(os.sched_getaffinity(0)), size // BYTES_PER_PROCESS) if can_fork else 0
    if count == 0:
        return [list(sources)]
    shares: list[_Share] = [[] for _ in range(count)]
    middle = 0.0
    for source in sources:
        middle += source.size / 2
        shares[min(int(middle * count / size), count - 1)].append(source)
        middle += source.size / 2
    return [share for share in shares if share]


def in_processes(
    work: Callable[[_Share], _Work], shares: Sequence[_Share], agree: Callable[[list[Any]], _Common]
) -> tuple[_Common, list[Any]]:
    """Work on each share in its own process, and return what they agreed on, and the results in order.

    Everything stays in the process that has read it. Only what ``work`` yields leaves it: first what the shares tell
    each other, of which ``agree`` makes what all of them are sent, then the results. Raise CannotJudgeError if one
    was killed.
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
            "error: a process that judged some of the files ended early; it may have run out of memory"
        ) from None
    finally:
        for _, process in workers:
            process.terminate()


def _work(connection: Connection, work: _Work) -> None:
    """Work on a share in a new process."""
    from multiprocessing import parent_process

    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all: the first process reports it
    parent: Any = parent_process()
    # A worker would wait forever if the first process was killed.
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    connection.send(next(work))
    connection.send(work.send(connection.recv()))
    signal.pause()  # until the first process ends it: a closed connection would look like an early end
