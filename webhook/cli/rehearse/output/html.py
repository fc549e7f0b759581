"""A rehearsal as one page of HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from webhook.cli.rehearse.output.reclaim_svg import LANES_AT_MOST, reclaim_drawing
from webhook.pages import page
from webhook.pages.drawing import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.cli.rehearse.result import Capacity, PoolCapacity, Rehearsal

_GIB: Final = 1 << 30


def show(rehearsal: Rehearsal) -> None:
    """Print the page."""
    print(
        page(
            "rehearse.html",
            style=STYLE,
            rehearsal=rehearsal,
            nodes=sum(len(each.nodes) for each in rehearsal.windows),
            reclaim=Markup(reclaim_drawing(rehearsal)),  # noqa: S704 - it escapes what it shows
            lanes=LANES_AT_MOST,
            resources=list(_resources(rehearsal.pools)),
            requested_of=_requested_of,
        )
    )


def _resources(pools: Sequence[PoolCapacity]) -> Iterator[str]:
    """Yield the resources whose capacity matters."""
    offered = {name for pool in pools for name, amount in pool.before.allocatable.items() if amount}
    asked = {name for pool in pools for name, amount in pool.before.requested.items() if amount}
    yield from (each for each in ("cpu", "memory") if each in offered)
    yield from sorted(each for each in offered & asked if "/" in each)


def _requested_of(capacity: Capacity, resource: str) -> str:
    """Return what Pods request of what nodes offer."""
    amounts = (each.get(resource, 0) for each in (capacity.requested, capacity.allocatable))
    return " of ".join(f"{each / _GIB:,.4g} GiB" if resource == "memory" else f"{each:,.4g}" for each in amounts)
