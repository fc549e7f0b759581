"""A rehearsal's page: the lanes of its picture count what the events say, and nothing in it is markup of the user's."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from webhook.rehearse.output import html
from webhook.rehearse.result import (
    Figure,
    ReclaimEvent,
    ReclaimWindow,
    Rehearsal,
    RehearsalSummary,
    WorkloadResult,
)

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


def rehearsal(*events: ReclaimEvent) -> Rehearsal:
    return Rehearsal(
        lost=("NodePool/spot",),
        runs=1,
        scheduler="1.37.2",
        not_simulated=(),
        modelled=(),
        summary=RehearsalSummary(NONE, NONE, NONE, NONE, Figure()),
        workloads=(workload(),),
        windows=(WINDOW,),
        events=events,
    )


def of_web(seconds: float, name: str, pod: str) -> ReclaimEvent:
    return ReclaimEvent(seconds, name, "spot-1", pod, WEB)  # type: ignore[arg-type]


def said(drawing: str) -> list[str]:
    """Return what the bars say on hovering."""
    return [each.text or "" for each in ET.fromstring(drawing).iter("title")]  # noqa: S314 - our own


@pytest.mark.parametrize(
    ("events", "bars"),
    [
        pytest.param(
            [
                of_web(30, "evicted", "a"),
                of_web(30, "placed", "b"),
                of_web(60, "ready", "b"),
                of_web(90, "stopped", "a"),
            ],
            [
                "2 of 2: ready",
                "1 of 2: ready",
                "1 of 2: stops, in its grace period",
                "1 of 2: starts on another node",
                "2 of 2: ready",
                "1 of 2: stops, in its grace period",
                "2 of 2: ready",
            ],
            id="moves",
        ),
        pytest.param(
            [of_web(300, "killed", "a"), of_web(300, "pending", "b")],
            ["2 of 2: ready", "1 of 2: ready", "1 of 2: pending"],
            id="killed, and its replacement stays pending",
        ),
        pytest.param(
            [
                of_web(30, "evicted", "a"),
                of_web(40, "stopped", "a"),
                of_web(40, "placed", "a"),
                of_web(50, "ready", "a"),
            ],
            [
                "2 of 2: ready",
                "1 of 2: ready",
                "1 of 2: stops, in its grace period",
                "1 of 2: ready",
                "1 of 2: starts on another node",
                "2 of 2: ready",
            ],
            id="comes back under its name",
        ),
    ],
)
def test_a_lane_counts_the_pods_in_each_state(events: list[ReclaimEvent], bars: list[str]) -> None:
    assert [each for each in said(html.reclaim_drawing(rehearsal(*events))) if " of 2: " in each] == bars


def test_there_is_no_picture_where_nothing_happens_to_a_pod() -> None:
    assert not html.reclaim_drawing(rehearsal())


def test_the_page_escapes_names_and_says_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    html.show(rehearsal(of_web(30, "evicted", "a")))
    shown = capsys.readouterr().out
    assert "&lt;web&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert not re.search(r"<(web|b)>", shown)
    assert "unknown" in shown
