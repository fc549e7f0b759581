"""A rehearsal's page: the lanes of its picture count what the events say, and nothing in it is markup of the user's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from msgspec import structs

from webhook.rehearse.output import html
from webhook.rehearse.result import (
    Capacity,
    Figure,
    PoolCapacity,
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


def rehearsal(*states: tuple[float, tuple[int, ...]], pools: tuple[PoolCapacity, ...] = ()) -> Rehearsal:
    return Rehearsal(
        lost=("NodePool/spot",),
        runs=1,
        scheduler="1.37.2",
        not_simulated=(),
        summary=RehearsalSummary(NONE, NONE, NONE, NONE, Figure()),
        workloads=(structs.replace(workload(), states=states),),
        windows=(WINDOW,),
        pools=pools,
    )


def said(drawing: str) -> list[str]:
    """Return what the bars say on hovering."""
    return [each.text or "" for each in ET.fromstring(drawing).iter("title")]  # noqa: S314 - our own


def test_a_lane_shows_how_many_pods_are_in_each_state() -> None:
    drawing = html.reclaim_drawing(rehearsal((0, (2, 0, 0, 0)), (30, (1, 1, 1, 0)), (60, (1, 0, 0, 1))))
    assert [title for title in said(drawing) if " of 2: " in title] == [
        "2 of 2: ready",
        *("1 of 2: ready", "1 of 2: stops, in its grace period", "1 of 2: starts"),
        *("1 of 2: ready", "1 of 2: pending"),
    ]


def test_there_is_no_picture_where_nothing_happens_to_a_pod() -> None:
    assert not html.reclaim_drawing(rehearsal())


def test_capacity_is_shown_for_resources_that_nodes_offer_and_pods_request(capsys: pytest.CaptureFixture[str]) -> None:
    offered = {"cpu": 4.0, "memory": 2.0**33, "nvidia.com/gpu": 1.0, "hugepages-1Gi": 1.0, "example.com/<x>": 1.0}
    before = Capacity(1, offered, {"cpu": 1.0, "example.com/<x>": 1.0})
    html.show(rehearsal(pools=(PoolCapacity("spot", before=before, after=Capacity(0, {}, {})),)))
    shown = capsys.readouterr().out.split("<h2>Capacity by pool</h2>")[1]
    assert re.findall(r'<th class="number" scope="col">(.*?)</th>', shown) == [
        *("Nodes", "cpu", "memory", "example.com/&lt;x&gt;")
    ]
    assert re.findall(r"[^>]* of [^<]*(?= <meter)", shown) == [
        *("1 of 4", "0 GiB of 8 GiB", "1 of 1"),
        *("0 of 0", "0 GiB of 0 GiB", "0 of 0"),
    ]


def test_the_page_escapes_names_and_says_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    html.show(rehearsal((0, (2, 0, 0, 0))))
    shown = capsys.readouterr().out
    assert "&lt;web&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert not re.search(r"<(web|b)>", shown)
    assert "unknown" in shown
