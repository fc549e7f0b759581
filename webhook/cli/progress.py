"""How far judging is: a bar on standard error, where that is a terminal and it takes a while."""

from __future__ import annotations

import math
import mmap
import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from rich.progress import Progress as Bar

T = TypeVar("T")

PATIENCE: Final = 1.0
"""Seconds before there is a bar."""

_EVERY: Final = 0.1
"""Seconds between two looks of it."""


class Progress:
    """Counts what is done, in this process and in those that it forks; the first one shows it."""

    def __init__(self) -> None:
        self._wanted = False
        self._due = 0.0
        self._bar: Bar | None = None
        self._total = 0
        self._own = 0
        self._done: list[float] | memoryview[float] = [0.0]

    def start(self, sources: int, *, processes: int = 1) -> None:
        """So many sources are going to be read and judged, by so many processes."""
        self._wanted = sys.stderr.isatty()
        self._due = monotonic() + PATIENCE
        self._total = 2 * sources
        if processes > 1:  # they share the memory with the figures
            self._done = memoryview(mmap.mmap(-1, 8 * processes)).cast("d")

    def go_on_in(self, process: int) -> None:
        """This is now the process with that number, from 0, and shows nothing."""
        self._own = process
        self._due = math.inf

    def reading(self, sources: Iterable[T]) -> Iterable[T]:
        """The same sources, each counted when it has been read."""
        return self._counted(sources, 1.0) if self._wanted else sources

    def judging(self, objects: Sequence[T]) -> Iterable[T]:
        """The same objects, all of them together counted as much as the sources that they are from."""
        return self._counted(objects, self._done[self._own] / max(1, len(objects))) if self._wanted else objects

    def wait(self, link: Connection) -> Connection:
        """The same link, once there is something to receive; until then, show how far the other processes are."""
        while self._wanted and not link.poll(_EVERY):
            self._show()
        return link

    def close(self) -> None:
        """Leave nothing on the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._wanted = False
        self._done = [0.0]

    def _counted(self, things: Iterable[T], weight: float) -> Iterator[T]:
        for each in things:
            yield each
            self._done[self._own] += weight
            self._show()

    def _show(self) -> None:
        now = monotonic()
        if now < self._due:
            return
        self._due = now + _EVERY
        if self._bar is None:
            from rich.console import Console  # noqa: PLC0415 - for those who wait
            from rich.progress import Progress as Bar  # noqa: PLC0415

            self._bar = Bar(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._bar.add_task("judging", total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=sum(self._done), refresh=True)
