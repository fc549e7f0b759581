"""The capacity of the node pools before and after a reclaim as SVG: what is requested of what is offered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.pages.drawing import WIDTH, bar, safe, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.cli.rehearse.result import PoolCapacity

_GIB: Final = 1 << 30
_FIRST: Final[tuple[str, ...]] = ("cpu", "memory")
_LEFT: Final = 250
_RIGHT: Final = WIDTH - 150
_ROW: Final = 40
_BAR: Final = 13


def capacity_drawings(pools: Sequence[PoolCapacity]) -> Iterator[tuple[str, str]]:
    """Yield each resource that matters, with its drawing for a page that includes the style of drawings."""
    offered = {name for pool in pools for name, amount in pool.before.allocatable.items() if amount}
    asked = {name for pool in pools for name, amount in pool.before.requested.items() if amount}
    shown = [each for each in _FIRST if each in offered]
    shown += sorted(each for each in offered & asked if "/" in each)
    for resource in shown:
        having = [each for each in pools if any(part.allocatable.get(resource) for part in (each.before, each.after))]
        height = _ROW * len(having) + 8
        drawn = "".join(_drawing(having, resource))
        size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        title = f"<title>{safe(resource)} before and after</title>"
        yield resource, f'<svg class="spotgate" {size} role="img">\n{title}\n{drawn}</svg>'


def _drawing(pools: Sequence[PoolCapacity], resource: str) -> Iterator[str]:
    parts = [part for pool in pools for part in (pool.before, pool.after)]
    most = max(amounts.get(resource, 0) for part in parts for amounts in (part.allocatable, part.requested))
    for number, pool in enumerate(pools):
        y = 6 + _ROW * number
        yield text(16, y + 12, pool.name or "no known pool", "strong", most=26)
        nodes = f"{pool.before.nodes} nodes"
        if pool.after.nodes != pool.before.nodes:
            nodes += f", then {pool.after.nodes}"
        yield text(16, y + 28, f"{'spot, ' if pool.spot else ''}{nodes}", "faint")
        for row, (when, part) in enumerate((("before", pool.before), ("after", pool.after))):
            top = y + row * (_BAR + 3)
            offered, asked = part.allocatable.get(resource, 0), part.requested.get(resource, 0)
            yield text(_LEFT - 10, top + 11, when, "faint", anchor="end")
            yield bar("running", _LEFT, top, _width(offered, most), _BAR)
            yield bar("shutdown", _LEFT, top, _width(asked, most), _BAR)
            yield text(_RIGHT + 10, top + 11, f"{_amount(asked, resource)} of {_amount(offered, resource)}", "faint")


def _width(amount: float, most: float) -> float:
    return round((_RIGHT - _LEFT) * amount / most, 1)


def _amount(amount: float, resource: str) -> str:
    return f"{amount / _GIB:,.4g} GiB" if resource == "memory" else f"{amount:,.4g}"
