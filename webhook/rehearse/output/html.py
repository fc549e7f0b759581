"""Print a rehearsal as an HTML page with a drawing: the states of Pods below the provider's actions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from webhook.base.terminal import counted
from webhook.pages import page
from webhook.pages.drawing import WIDTH, bar, legend, safe, text
from webhook.reclaim.axis import TimeAxis
from webhook.rehearse.result import MODELLED, Capacity, PoolCapacity, Rehearsal, WorkloadResult
from webhook.rehearse.verdict import effects_of, expected_of, nodes_of, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_LEGEND: Final = (
    ("margin", "ready"),
    ("shutdown", "stops, in its grace period"),
    ("preStop", "starts"),
    ("lost", "pending"),
)
"""The color and the label of each `PodState`, from the bottom of a lane to its top."""
_LANES_AT_MOST: Final = 40
"""The maximum number of workloads to draw; more would be unreadable."""

_LEFT: Final = 206
_RIGHT: Final = WIDTH - 110
_ROW: Final = 34
_BAR: Final = 24
_TOP: Final = 48
_GIB: Final = 1 << 30


def show(rehearsal: Rehearsal) -> None:
    """Print the HTML page."""
    print(
        page(
            "rehearse.html",
            style="drawing.css",
            rehearsal=rehearsal,
            verdict=verdict_of(rehearsal),
            with_fixes=effects_of(rehearsal.fixed) if rehearsal.fixed is not None else "",
            nodes=nodes_of(rehearsal),
            every_node=sorted(node for window in rehearsal.windows for node in window.nodes),
            expected=expected_of(rehearsal),
            reclaim=Markup(reclaim_drawing(rehearsal)),  # noqa: S704 - the drawing escapes all text
            lanes=_LANES_AT_MOST,
            modelled=MODELLED,
            resources=list(_resources(rehearsal.pools)),
            requested_of=_requested_of,
        )
    )


def _resources(pools: Sequence[PoolCapacity]) -> Iterator[str]:
    """Yield CPU, memory, and the extended resources that Pods request."""
    offered = {name for pool in pools for name, amount in pool.before.allocatable.items() if amount}
    requested = {name for pool in pools for name, amount in pool.before.requested.items() if amount}
    yield from (name for name in ("cpu", "memory") if name in offered)
    yield from sorted(name for name in offered & requested if "/" in name)


def _requested_of(capacity: Capacity, resource: str) -> str:
    """Return the requested and the allocatable amount of a resource as text."""
    amounts = (part.get(resource, 0) for part in (capacity.requested, capacity.allocatable))
    return " of ".join(f"{amount / _GIB:,.4g} GiB" if resource == "memory" else f"{amount:,.4g}" for amount in amounts)


def reclaim_drawing(rehearsal: Rehearsal) -> str:
    """Return an SVG drawing of the first run, or an empty string if there are no Pods. The page needs drawing.css."""
    workloads = [workload for workload, _ in rehearsal.sides if workload.states][:_LANES_AT_MOST]
    if not workloads:
        return ""
    changes = (seconds for workload in workloads for seconds, _ in workload.states)
    end = round(max(*(window.removal for window in rehearsal.windows), *changes, 1.0) * 1.06) + 1
    below = _TOP + _ROW * (len(rehearsal.windows) + len(workloads))
    height = below + 26
    return (
        f'<svg class="spotgate" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">\n'
        f"<title>The states of Pods, by seconds after the notice</title>\n"
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
        yield from _lane(workload, y, axis)
        y += _ROW
    yield from legend(_LEGEND, below + 12)


def _lane(workload: WorkloadResult, y: int, axis: TimeAxis) -> Iterator[str]:
    yield f"<g><title>{safe(str(workload))}</title>{text(16, y + 16, workload.name, most=23)}</g>\n"
    yield bar("running before", _LEFT, y, _RIGHT - _LEFT, _BAR)
    whole = max(sum(numbers) for _, numbers in workload.states) or 1
    for (begin, numbers), (until, _) in pairwise([*workload.states, (float(axis.end), ())]):
        bottom = float(y + _BAR)
        for number, (color, what) in zip(numbers, _LEGEND, strict=True):
            height = _BAR * number / whole
            bottom -= height
            about = f"{number} of {workload.replicas}: {what}"
            yield bar(color, axis.x(begin), bottom, axis.x(until) - axis.x(begin), height, about) if number else ""
    yield text(_RIGHT + 12, y + 16, f"{workload.lowest_ready} of {workload.replicas}")
