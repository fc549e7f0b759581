"""Record reviews for ``spotgate replay`` outside the request path (``serve --record DIR``).

The event loop only puts a decision into a queue. A thread encodes it and appends the line to a file of this process.
A review that is too large, comes while too many wait or can't be written is counted and left out: no request waits or
fails for it.
"""

from __future__ import annotations

import errno
import os
import threading
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.server.log import log, where
from webhook.server.recording import SUFFIX, encode_line, is_secret

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision
    from webhook.model.review import Request
    from webhook.rules.context import Context
    from webhook.server.limits import Limits
    from webhook.server.metrics import Metrics

_PREFIX: Final = "reviews-"
_OTHERS: Final = 0o077
"""The permissions of users other than the owner."""


def prepare_folder(folder: Path) -> None:
    """Make the folder for recorded reviews, readable by this user alone.

    Raises:
        OSError: the folder can't be used. ``str()`` says why.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{folder}: can't be made a folder for recorded reviews: {error.strerror or error}") from None
    mode = folder.stat().st_mode & 0o777
    if mode & _OTHERS:
        raise OSError(
            f"{folder}: other users may look into it (mode {mode:04o}), and recorded reviews are not for them; "
            f"name a folder that is not there yet, or run `chmod 700 {folder}`"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"{folder}: may not be written to, so reviews can't be recorded there")


class _Taken(NamedTuple):
    """A decision that waits to be written. It is immutable."""

    request: Request
    decision: Decision
    context: Context
    bundle: Bundle
    answer: bytes
    size: int


class Recorder:
    """Recorder of decisions for `spotgate replay`.

    Args:
        folder: as `prepare_folder` left it.
        metrics: counts the reviews that are recorded, and those that are not.
        limits: bytes on disk and in the queue.
    """

    def __init__(self, folder: Path, metrics: Metrics, limits: Limits) -> None:
        self._files = _Files(folder, limits)
        self._metrics = metrics
        self._limits = limits
        self._queue: SimpleQueue[_Taken | None] = SimpleQueue()
        # Bytes, ever: each is counted by one thread alone, and what waits is the difference.
        self._taken = 0
        self._done = 0
        self._last_problem = ""
        self._thread = threading.Thread(target=self._work, name="spotgate-recorder", daemon=True)

    def start(self) -> None:
        """Start the thread that writes."""
        log.info("recording reviews", folder=str(self._files.folder))
        self._thread.start()

    def close(self) -> None:
        """Write the queue, as far as that takes no longer than `Limits.finish`."""
        self._queue.put(None)
        self._thread.join(self._limits.finish)

    def take(self, request: Request, decision: Decision, context: Context, bundle: Bundle, answer: bytes) -> None:
        """Queue a decision for recording, unless it is about a secret or too much is waiting."""
        if is_secret(request):
            return
        size = len(request.object) + len(request.old_object) + len(answer)
        if size > self._limits.record_bytes:
            self._metrics.count("unrecorded", "too large")
        elif self._taken - self._done + size > self._limits.records_waiting:
            self._metrics.count("unrecorded", "too many at once")
        else:
            self._taken += size
            self._queue.put(_Taken(request, decision, context, bundle, answer, size))

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            try:
                self._files.append(encode_line(*taken[:-1]))
            except OSError as error:
                self._failed("can't be written", error.strerror or type(error).__name__)
            except Exception as error:  # noqa: BLE001 - recording must not end, whatever is in a review
                self._failed("bug", f"{type(error).__name__} {where(error)}")
            else:
                self._metrics.count("recorded")
                self._last_problem = ""
            self._done += taken.size
        self._files.close()

    def _failed(self, reason: str, problem: str) -> None:
        self._metrics.count("unrecorded", reason)
        # It will be the same with the next review, but one line is enough.
        if problem != self._last_problem:
            log.error("reviews not recorded", reason=reason, problem=problem)
        self._last_problem = problem


class _Files:
    """The files of a folder, each up to a maximum size. The oldest are removed when there are too many."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self._limits = limits
        self._descriptor = -1
        self._size = 0

    def append(self, line: bytes) -> None:
        """Write a line whole or not at all. Raise OSError if it can't be written."""
        is_full = self._descriptor < 0 or self._size + len(line) > self._limits.record_file
        if is_full or not os.fstat(self._descriptor).st_nlink:  # the file was removed
            self._begin()
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - what is half written is cut below
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            self.close()
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close the current file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self) -> None:
        self.close()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # In the order of time, and never that of an earlier process: O_EXCL.
        name = f"{_PREFIX}{datetime.now(tz=UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}{SUFFIX}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self.folder / name, flags, 0o600)
        self._size = 0
        files = sorted(self.folder.glob(f"{_PREFIX}*{SUFFIX}"))
        for file in files[: -self._limits.record_files]:
            file.unlink(missing_ok=True)
