"""Print a rehearsal as an HTML page with a drawing: the states of Pods below the provider's actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from webhook.pages import drawing, page
from webhook.reclaim.svg import CHARACTER, TimeAxis
from webhook.rehearse.result import MODELLED, PoolCapacity, Rehearsal
from webhook.rehearse.verdict import effects_of, expected_of, nodes_of, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_STATES: Final = (
    ("margin", "ready"),
    ("shutdown", "stops, in its grace period"),
    ("preStop", "starts"),
    ("lost", "pending"),
)
"""The color and the label of each `PodState`, from the bottom of a lane to its top."""
_LANES_AT_MOST: Final = 40
"""The maximum number of workloads to draw; more would be unreadable."""


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
            reclaim=reclaim_drawing(rehearsal),
            lanes=_LANES_AT_MOST,
            modelled=MODELLED,
            resources=list(_resources(rehearsal.pools)),
        )
    )


def _resources(pools: Sequence[PoolCapacity]) -> Iterator[str]:
    """Yield CPU, memory, and the extended resources that Pods request."""
    offered = {name for pool in pools for name, amount in pool.before.allocatable.items() if amount}
    requested = {name for pool in pools for name, amount in pool.before.requested.items() if amount}
    yield from (name for name in ("cpu", "memory") if name in offered)
    yield from sorted(name for name in offered & requested if "/" in name)


def reclaim_drawing(rehearsal: Rehearsal) -> Markup:
    """Return an SVG drawing of the first run, or an empty string if there are no Pods. The page needs drawing.css."""
    workloads = [workload for workload, _ in rehearsal.sides if workload.states][:_LANES_AT_MOST]
    if not workloads:
        return Markup()
    changes = (seconds for workload in workloads for seconds, _ in workload.states)
    end = round(max(*(window.removal for window in rehearsal.windows), *changes, 1.0) * 1.06) + 1
    return drawing(
        "reclaim.svg",
        rehearsal=rehearsal,
        workloads=workloads,
        end=end,
        TimeAxis=TimeAxis,
        CHARACTER=CHARACTER,
        STATES=_STATES,
    )
