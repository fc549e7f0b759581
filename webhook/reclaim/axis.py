"""Draw a time axis and the events of a node as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.pages.drawing import CHARACTER, text
from webhook.reclaim.timeline import clock, ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TimeAxis(NamedTuple):
    """A time axis from the notice up to ``end`` seconds after it, between two x coordinates."""

    left: int
    right: int
    end: int

    def x(self, seconds: float) -> float:
        """Return the x coordinate of a moment, at most the right end."""
        return round(self.left + (self.right - self.left) * min(seconds, self.end) / self.end, 1)

    def grid(self, top: int, bottom: int) -> Iterator[str]:
        """Draw grid lines at round times."""
        for tick in ticks(self.end):
            x = self.x(tick)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>\n'
            yield text(x, top - 6, clock(tick), "faint", anchor="middle")

    def node(self, moments: Iterable[tuple[float, str]], y: int, bottom: int) -> Iterator[str]:
        """Draw the life of a node up to its last moment. Moments at the same coordinate share a label."""
        at: dict[float, list[str]] = {}
        for seconds, name in moments:
            at.setdefault(self.x(seconds), []).append(name)
        end = max(at)
        yield f'<line class="node" x1="{self.x(0)}" x2="{end}" y1="{y}" y2="{y}"/>\n'
        free = 0.0
        for x, names in sorted(at.items()):
            label = ", ".join(names)
            yield f'<line class="moment" x1="{x}" x2="{x}" y1="{y - 14}" y2="{bottom}"/>\n'
            yield f'<circle class="faint" cx="{x}" cy="{y}" r="4"/>\n'
            width = CHARACTER * len(label)
            if (begin := x - 6 - width if x == end > self.left + width else x + 6) >= free:
                anchor, place = ("end", x - 6) if begin < x else ("start", x + 6)
                yield text(place, y - 6, label, "faint", anchor=anchor)
                free = begin + width
