"""Write log lines as JSON to standard output. They never contain objects, parts of objects, or patches."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import orjson
import structlog

from webhook.base.text import frames_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

TEXT_LENGTH: Final = 256
"""The maximum number of characters of a name in a log line. Kubernetes names have at most 253."""

_FLUSH: Final = 0.2
"""Seconds for which the log buffers the line of a decision. Separate writes take a tenth of a request's time."""

_LINES: Final = 64
"""The maximum number of buffered lines: about 20 KB."""

_REPEAT: Final = 1.0
"""Seconds between lines about the same event, so that a flood of requests doesn't cause a flood of lines."""

LASTING: Final = 600.0
"""Seconds between lines about a lasting problem, which every check notices."""

_INFO: Final = 20
_JSON: Final = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE

log: FilteringBoundLogger = structlog.get_logger()


class _Output:
    """A buffered output file. It writes lines of `log` immediately, together with all buffered lines."""

    def __init__(self) -> None:
        self.file: BinaryIO = sys.stdout.buffer
        self._waiting: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._waiting.append(line)

    def flush(self) -> None:
        lines, self._waiting = self._waiting, []
        self.file.write(b"".join(lines))
        self.file.flush()

    def write_soon(self, line: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_later(_FLUSH, self.flush)
        self._waiting.append(line)
        if len(self._waiting) >= _LINES:
            self.flush()


_output: Final = _Output()


def configure_logging(file: BinaryIO | None = None) -> None:
    """Send all log lines to ``file`` (default: standard output), one JSON object each."""
    _output.file = file or sys.stdout.buffer
    structlog.configure(
        processors=[_render],
        wrapper_class=structlog.make_filtering_bound_logger(_INFO),
        logger_factory=lambda *_: structlog.BytesLogger(cast("BinaryIO", _output)),  # it writes and flushes
        cache_logger_on_first_use=True,
    )


def log_decision(line: dict[str, object]) -> None:
    """Log one decision as `log.info` does, at less than half its cost. Call this inside a running loop."""
    line["level"] = "info"
    line["timestamp"] = datetime.now(tz=UTC)
    _output.write_soon(orjson.dumps(line, option=_JSON))


class Repeats:
    """A limit of one line for each key and interval, for events that can repeat endlessly."""

    def __init__(self, seconds: float = _REPEAT) -> None:
        self._seconds = seconds
        self._counts: Counter[str] = Counter()
        self._due: dict[str, float] = {}

    def log(self, write: Callable[..., object], event: str, key: str, **fields: object) -> None:
        """Write a line with the number of events since the last line, or only count the event.

        ``write`` is a method of `log`.
        """
        self._counts[key] += 1
        now = perf_counter()
        if now >= self._due.get(key, now):
            self._due[key] = now + self._seconds
            write(event, count=self._counts.pop(key), **fields)


def flush_log() -> None:
    """Write all buffered lines."""
    _output.flush()


def _render(_: WrappedLogger, level: str, event: EventDict) -> bytes:
    # One processor instead of structlog's three. The logger adds the newline.
    event["level"] = level
    event["timestamp"] = datetime.now(tz=UTC)
    return orjson.dumps(event, option=orjson.OPT_UTC_Z, default=str)


def log_failure(event: str, error: BaseException, **fields: object) -> None:
    """Log an exception by its type and frames, without its text, which may quote an object."""
    log.error(event, **fields, error=type(error).__name__, where=frames_of(error))


def log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Log an error that no coroutine handled (for `asyncio.loop.set_exception_handler`)."""
    error = context.get("exception")
    details = {"error": type(error).__name__, "where": frames_of(error)} if isinstance(error, BaseException) else {}
    log.error("unhandled error", problem=context.get("message"), **details)
