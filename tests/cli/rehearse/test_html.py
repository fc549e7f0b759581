"""A rehearsal's page: the lanes of its picture count what the events say, and nothing in it is markup of the user's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from msgspec import structs

from webhook.rehearse.output import html
from webhook.rehearse.result import (
    Figure,
    ReclaimWindow,
    Rehearsal,
    RehearsalSummary,
    WorkloadResult,
)

if TYPE_CHECKING:
    import pytest

WEB = ("Deployment", "shop", "<web>")
NONE = Figure(0, 0)
WINDOW = ReclaimWindow("CoreWeave", ("spot-1",), 0, 30, 300, 330)


def workload() -> WorkloadResult:
    kind, namespace, name = WEB
    return WorkloadResult(
        api_version="apps/v1",
        kind=kind,
        namespace=namespace,
        name=name,
        replicas=2,
        lost=1,
        moved=NONE,
        pending=NONE,
        missing=NONE,
        killed_early=NONE,
        lowest_ready=NONE,
        seconds_below_budget=NONE,
        reasons=("0/1 nodes are available: <b>",),
        work_lost_gpu_hours=NONE,
    )


def rehearsal(*ready: tuple[float, int]) -> Rehearsal:
    return Rehearsal(
        lost=("NodePool/spot",),
        runs=1,
        scheduler="1.37.2",
        not_simulated=(),
        modelled=(),
        summary=RehearsalSummary(NONE, NONE, NONE, NONE, Figure()),
        workloads=(structs.replace(workload(), ready=ready),),
        windows=(WINDOW,),
    )


def said(drawing: str) -> list[str]:
    """Return what the bars say on hovering."""
    return [each.text or "" for each in ET.fromstring(drawing).iter("title")]  # noqa: S314 - our own


def test_a_lane_shows_the_ready_pods() -> None:
    drawing = html.reclaim_drawing(rehearsal((0, 2), (30, 1), (60, 2)))
    assert [title for title in said(drawing) if " of 2 " in title] == ["2 of 2 ready", "1 of 2 ready", "2 of 2 ready"]


def test_there_is_no_picture_where_nothing_happens_to_a_pod() -> None:
    assert not html.reclaim_drawing(rehearsal())


def test_the_page_escapes_names_and_says_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    html.show(rehearsal((0, 2)))
    shown = capsys.readouterr().out
    assert "&lt;web&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert not re.search(r"<(web|b)>", shown)
    assert "unknown" in shown
