"""Record reviews for ``spotgate replay`` outside the request path (``serve --record DIR``).

The event loop only queues decisions. A thread encodes them and appends them to a file of this process. The recorder
drops and counts reviews that are too large, exceed the queue, or can't be written, so that no request waits or fails.
"""

from __future__ import annotations

import errno
import os
import threading
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from webhook.base.text import frames_of
from webhook.runtime.log import LASTING, Repeats, log
from webhook.runtime.recording import SUFFIX, encode_line, is_secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision
    from webhook.model.review import Request
    from webhook.rules.context import Context
    from webhook.runtime.limits import Limits
    from webhook.server.http.metrics import Metrics

_PREFIX: Final = "reviews-"
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_OTHERS: Final = 0o077
"""The permissions of users other than the owner."""


def prepare_folder(folder: Path) -> None:
    """Create the folder for recorded reviews, which only this user can read.

    Raises:
        OSError: the folder can't be used. ``str()`` says why.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{folder}: can't create this folder for recorded reviews: {error.strerror or error}") from None
    mode = folder.stat().st_mode & 0o777
    if mode & _OTHERS:
        raise OSError(
            f"{folder}: other users can read recorded reviews there (mode {mode:04o}); "
            f"name a new folder, or run `chmod 700 {folder}`"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"{folder}: this user can't write recorded reviews there")


class Recorder:
    """The recorder of decisions for `spotgate replay`.

    Args:
        folder: the folder, after `prepare_folder`.
        metrics: the counters of recorded and unrecorded reviews.
        limits: the limits on disk and in the queue.
    """

    def __init__(self, folder: Path, metrics: Metrics, limits: Limits) -> None:
        self._folder = folder
        self._metrics = metrics
        self._limits = limits
        self._queue: SimpleQueue[tuple[int, Callable[[], bytes]] | None] = SimpleQueue()
        # Bytes since the start. Only one thread writes each counter; the difference is the size of the queue.
        self._taken = 0
        self._done = 0
        self._repeats = Repeats(LASTING)
        self._file = folder
        self._left = 0
        self._thread = threading.Thread(target=self._work, name="spotgate-recorder", daemon=True)

    def start(self) -> None:
        """Start the writing thread."""
        log.info("recording reviews", folder=str(self._folder))
        self._thread.start()

    def close(self) -> None:
        """Write the queue, for at most `Limits.finish`."""
        self._queue.put(None)
        self._thread.join(self._limits.finish)

    def take(self, request: Request, decision: Decision, context: Context, bundle: Bundle, answer: bytes) -> None:
        """Queue a decision for recording, unless it may contain secrets or the queue is full."""
        if is_secret(request):
            return
        size = len(request.object) + len(request.old_object) + len(answer)
        if size > self._limits.record_bytes:
            self._metrics.count("unrecorded", "too large")
        elif self._taken - self._done + size > self._limits.records_waiting:
            self._metrics.count("unrecorded", "too many at once")
        else:
            self._taken += size
            self._queue.put((size, partial(encode_line, request, decision, context, bundle, answer)))

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            size, encoded = taken
            reason = problem = ""
            try:
                self._append(encoded())
            except OSError as error:
                reason, problem = "can't be written", error.strerror or type(error).__name__
            except Exception as error:  # noqa: BLE001 - no review must stop the recording
                reason, problem = "bug", f"{type(error).__name__} {frames_of(error)}"
            self._metrics.count(*(("unrecorded", reason) if reason else ("recorded",)))
            if problem:
                self._repeats.log(log.error, "reviews not recorded", problem, reason=reason, problem=problem)
            self._done += size

    def _append(self, line: bytes) -> None:
        """Append a line completely or not at all. Raise OSError if the write fails."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if len(line) > self._left:
            self._begin()
        descriptor = os.open(self._file, _FLAGS, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        self._left -= len(line)

    def _begin(self) -> None:
        """Start a file, and remove the oldest files if there are too many."""
        self._file = self._folder / f"{_PREFIX}{datetime.now(tz=UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}{SUFFIX}"
        self._left = self._limits.record_file
        files = sorted(self._folder.glob(f"{_PREFIX}*{SUFFIX}"))
        for file in files[: max(0, len(files) + 1 - self._limits.record_files)]:
            file.unlink(missing_ok=True)
