"""Show a rehearsal as one page of HTML, with a picture: what happens to Pods, below what the provider does."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from markupsafe import Markup

from webhook.base.terminal import counted
from webhook.pages import page
from webhook.pages.drawing import WIDTH, bar, legend, safe, text
from webhook.reclaim.axis import TimeAxis
from webhook.rehearse.verdict import effects_of, nodes_of, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.rehearse.result import (
        ReclaimEvent,
        Rehearsal,
        WorkloadResult,
    )

PodState = Literal["ready", "stopping", "starting", "pending"]

_LEGEND: Final[dict[PodState, tuple[str, str]]] = {
    "ready": ("margin", "ready"),
    "stopping": ("shutdown", "stops, in its grace period"),
    "starting": ("preStop", "starts on another node"),
    "pending": ("lost", "pending"),
}
"""The color and the words of each state, from the bottom of a lane to its top."""

_BECOMES: Final[dict[str, PodState | None]] = {
    "evicted": "stopping",
    "stopped": None,
    "killed": None,
    "placed": "starting",
    "ready": "ready",
    "pending": "pending",
}
"""The state of a Pod after an event; None: it is gone."""

_LANES_AT_MOST: Final = 40
"""Workloads that are drawn; a picture of more is not read."""

_LEFT: Final = 206
_RIGHT: Final = WIDTH - 110
_ROW: Final = 34
_BAR: Final = 24
_TOP: Final = 48


def show(rehearsal: Rehearsal) -> None:
    """Print the page."""
    print(
        page(
            "rehearse.html",
            style="drawing.css",
            rehearsal=rehearsal,
            verdict=verdict_of(rehearsal),
            with_fixes=effects_of(rehearsal.fixed) if rehearsal.fixed is not None else "",
            nodes=nodes_of(rehearsal),
            every_node=sorted(node for window in rehearsal.windows for node in window.nodes),
            reclaim=Markup(reclaim_drawing(rehearsal)),  # noqa: S704 - it escapes what it shows
            lanes=_LANES_AT_MOST,
        )
    )


def reclaim_drawing(rehearsal: Rehearsal) -> str:
    """Draw the first run for a page that includes the style of drawings; empty if nothing happened to a Pod."""
    touched = {event.workload for event in rehearsal.events}
    workloads = [workload for workload, _ in rehearsal.sides if workload.identity in touched][:_LANES_AT_MOST]
    if not workloads:
        return ""
    last = max(*(window.removal for window in rehearsal.windows), *(event.seconds for event in rehearsal.events), 1.0)
    end = round(last * 1.06) + 1
    below = _TOP + _ROW * (len(rehearsal.windows) + len(workloads))
    height = below + 26
    return (
        f'<svg class="spotgate" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">\n'
        f"<title>What becomes of the Pods, by seconds after the notice</title>\n"
        f"{''.join(_drawing(rehearsal, workloads, end, below))}</svg>"
    )


def _drawing(rehearsal: Rehearsal, workloads: Sequence[WorkloadResult], end: int, below: int) -> Iterator[str]:
    axis = TimeAxis(_LEFT, _RIGHT, end)
    yield from axis.grid(24, below - 6)
    y = _TOP
    for window in rehearsal.windows:
        yield text(16, y + 4, f"{counted(len(window.nodes), 'node')}, {window.provider}", "strong", most=24)
        yield from axis.node(window.moments, y, below - 6)
        y += _ROW
    yield text(_RIGHT + 12, y - _ROW // 2, "lowest ready", "faint")
    for workload in workloads:
        yield from _lane(workload, rehearsal.events, y, axis)
        y += _ROW
    yield from legend(_LEGEND.values(), below + 12)


def _lane(workload: WorkloadResult, events: Iterable[ReclaimEvent], y: int, axis: TimeAxis) -> Iterator[str]:
    yield f"<g><title>{safe(str(workload))}</title>{text(16, y + 16, workload.name, most=23)}</g>\n"
    own = [event for event in events if event.workload == workload.identity]
    changes = [*_counts(workload.replicas, own), (float(axis.end), Counter())]
    yield bar("running before", _LEFT, y, _RIGHT - _LEFT, _BAR)
    for (begin, counts), (until, _) in pairwise(changes):
        yield from _stack(counts, workload.replicas, (axis.x(begin), axis.x(until)), y)
    yield text(_RIGHT + 12, y + 16, f"{workload.lowest_ready} of {workload.replicas}")


def _stack(counts: Counter[PodState | None], replicas: int, between: tuple[float, float], y: int) -> Iterator[str]:
    whole = max(replicas, sum(counts[state] for state in _LEGEND), 1)
    bottom = float(y + _BAR)
    for state, (colour, what) in _LEGEND.items():
        if not counts[state]:
            continue
        height = _BAR * counts[state] / whole
        bottom -= height
        about = f"{counts[state]} of {replicas}: {what}"
        yield bar(colour, between[0], bottom, between[1] - between[0], height, about)


def _counts(replicas: int, events: Iterable[ReclaimEvent]) -> list[tuple[float, Counter[PodState | None]]]:
    """Return how many Pods are in each state, from each second on at which that changes."""
    counts: Counter[PodState | None] = Counter({"ready": replicas})
    states: dict[str, PodState | None] = {}
    changes = {0.0: counts.copy()}
    for event in events:
        if event.name in _BECOMES:
            was = states.get(event.pod, "ready")
            is_new = event.name in {"placed", "pending"} and was != "pending"  # also one of that name
            counts[None if is_new else was] -= 1
            counts[_BECOMES[event.name]] += 1
            states[event.pod] = _BECOMES[event.name]
            changes[event.seconds] = counts.copy()
    return list(changes.items())
