"""The first sentence of a rehearsal summarizes its worst run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.cli.rehearse.test_fixes import rehearsed
from webhook.rehearse.output import html, table
from webhook.rehearse.output import json as json_format
from webhook.rehearse.reasons import Cause, HarmReason
from webhook.rehearse.result import Figure, RehearsalSummary
from webhook.rehearse.runs.tally import readiness_of
from webhook.rehearse.verdict import verdict_of

if TYPE_CHECKING:
    from webhook.rehearse.result import Rehearsal

ZERO, NEVER = Figure(0, 0), Figure()


def losing(*workloads: dict[str, Any]) -> Rehearsal:
    """Return a rehearsal with these workloads; each loses all of its six replicas by default."""
    every = [rehearsed().workloads[0]] if not workloads else []
    for figures in workloads:
        own = {key: value if not isinstance(value, int) else Figure(value, value) for key, value in figures.items()}
        own |= {key: figures[key] for key in ("lost", "replicas") if key in figures}
        every.append(structs.replace(rehearsed().workloads[0], **own))
    totals = {
        name: Figure(0, sum(getattr(workload, name).max for workload in every))
        for name in RehearsalSummary.__struct_fields__
    }
    return structs.replace(rehearsed(), workloads=tuple(every), summary=RehearsalSummary(**totals))


AGENT = {"name": "agent", "kind": "DaemonSet", "lost": 2, "goes_with_nodes": True, "ready_again_seconds": NEVER}


@pytest.mark.parametrize(
    ("workloads", "sentence"),
    [
        ([{}], "all 6 Pods move, and nothing is down."),
        ([{"lost": 1}], "its only Pod moves, and nothing is down."),
        ([{"lost": 0}], "no Pod has to move, and nothing is down."),
        ([AGENT | {"down_seconds": NEVER}], "no Pod has to move, and nothing is down."),
        ([{}, AGENT], "all 6 Pods move, and nothing is down."),
        (
            [{"pending": Figure(2, 6), "down_seconds": Figure(30, 140)}, {"name": "api", "killed_early": 3}],
            "6 of 12 Pods stay pending, 3 are killed before they finish, web is down for 140 s.",
        ),
        ([{"pending": 1, "missing": 4}], "1 of 6 Pods stays pending, 4 are not recreated."),
        ([{"lost": 0, "pending": 2}], "2 of 2 Pods stay pending."),
        ([{"killed_early": 1}], "all 6 Pods move, 1 is killed before it finishes."),
        (
            [{"down_seconds": NEVER, "missing": 6}, {"name": "api", "down_seconds": 30}],
            "6 of 12 Pods are not recreated, web stays down, api is down for 30 s.",
        ),
        (
            [{"down_seconds": 30}, {"name": "api", "down_seconds": 60}, {"name": "cache", "down_seconds": 10}],
            "all 18 Pods move, api and 2 others are down for up to 60 s.",
        ),
        ([{"kind": "Job", "reasons": (HarmReason(Cause.JOB_FAILED, "why"),), "down_seconds": NEVER}], "Job web fails."),
        ([{"kind": "Job", "reasons": (HarmReason(Cause.INDEXES_FAILED, "1"),)}], "indexes of Job web fail."),
        ([{"work_lost_gpu_hours": 2}], "all 6 Pods move, 2 GPU-hours of work are lost."),
    ],
)
def test_the_verdict_summarizes_the_losses(workloads: list[dict[str, Any]], sentence: str) -> None:
    assert verdict_of(losing(*workloads)) == f"Losing spot: {sentence}"


def test_the_verdict_names_the_lost_nodes() -> None:
    lost = ("30% of NodePool/gpu-spot", "label topology.kubernetes.io/zone=a")
    sentence = verdict_of(structs.replace(losing(), lost=lost))
    assert sentence.startswith("Losing 30% of gpu-spot, label topology.kubernetes.io/zone=a: ")


def test_every_format_begins_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    result = structs.replace(losing({"pending": 6, "ready_again_seconds": NEVER}, AGENT), programs="/root/.cache")
    verdict = "Losing spot: 6 of 6 Pods stay pending."
    table.show(result)
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert (first, second) == (verdict, "    NodePool/spot: 2 nodes lost (spot-0, spot-1); scheduler 1.37.2, 1 run")
    assert rest[2].endswith("lowest ready 6, never all ready again")
    assert rest[3] == "Expected: 2 Pods of DaemonSets or static Pods stop with the nodes: DaemonSet agent"
    assert rest[-1] == "programs of the control plane: /root/.cache"
    html.show(result)
    page = capsys.readouterr().out
    assert f"<h1>{verdict}</h1>" in page
    beginning, _, rest_of_page = page.partition('<ul class="tiles">')
    assert "spot-0, spot-1" in beginning
    assert ".cache" not in beginning
    assert "Programs of the control plane: /root/.cache" in rest_of_page
    assert rest[3] in rest_of_page
    assert "<strong>shop/agent" not in rest_of_page
    json_format.show(result)
    report = json.loads(capsys.readouterr().out)
    assert next(iter(report["summary"].items())) == ("verdict", verdict)
    assert report["workloads"][0]["readyAgainSeconds"] == {"min": None, "max": None}
    assert report["workloads"][0].keys().isdisjoint({"downSeconds", "goesWithNodes"})


@pytest.mark.parametrize(
    ("looks", "again", "down"),
    [
        ([(0, 2), (60, 1), (90, 2)], 90, 0),
        ([(0, 2), (60, 0), (90, 1), (120, 2), (200, 0), (210, 3)], 210, 40),
        ([(0, 2), (60, 1)], None, 0),
        ([(0, 2), (60, 0)], None, None),
        ([(0, 0), (60, 0)], 0, 0),
    ],
)
def test_a_workload_recovers_when_as_many_pods_are_ready_as_before(
    looks: list[tuple[float, int]], again: float | None, down: float | None
) -> None:
    _, *figures = readiness_of([(seconds, (ready, 0, 0, 1)) for seconds, ready in looks])
    assert [Figure.of(figure).max for figure in figures] == [again, down]
