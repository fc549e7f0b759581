"""A rehearsal as one page of HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from webhook.cli.rehearse.output.capacity_svg import capacity_drawings
from webhook.cli.rehearse.output.reclaim_svg import LANES_AT_MOST, reclaim_drawing
from webhook.pages import page
from webhook.pages.drawing import STYLE

if TYPE_CHECKING:
    from webhook.cli.rehearse.result import Rehearsal


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
            capacities=[(name, Markup(drawing)) for name, drawing in capacity_drawings(rehearsal.pools)],  # noqa: S704
        )
    )
