"""A rehearsal's page, and `--with-fixes` in every format: the run with the fixes next to the original run."""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from msgspec import structs

from tests.cli.rehearse.test_fixes import rehearsed
from webhook.rehearse.output import html, table
from webhook.rehearse.output import json as json_format
from webhook.rehearse.reasons import Cause, HarmReason
from webhook.rehearse.result import Capacity, Figure, PoolCapacity, ReclaimWindow, Rehearsal, RehearsalSummary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.browser import Seen

ZERO, SIX = Figure(0, 0), Figure(6, 6)
WINDOW = ReclaimWindow("CoreWeave", ("spot-1",), 0, 30, 300, 330)


def rehearsal(*states: tuple[float, tuple[int, ...]], pools: tuple[PoolCapacity, ...] = ()) -> Rehearsal:
    base = rehearsed(replicas=2, reasons=(HarmReason(Cause.OTHER, "0/1 nodes are available: <b>"),), states=states)
    workload = structs.replace(base.workloads[0], name="<web>", lost=1)
    summary = RehearsalSummary(ZERO, ZERO, ZERO, ZERO, Figure())
    return structs.replace(base, workloads=(workload,), summary=summary, windows=(WINDOW,), pools=pools)


def tooltips(drawing: str) -> list[str]:
    """Return the tooltips of the bars."""
    return [title.text or "" for title in ET.fromstring(drawing).iter("title")]  # noqa: S314 - our own


def test_a_lane_shows_how_many_pods_are_in_each_state() -> None:
    drawing = html.reclaim_drawing(rehearsal((0, (2, 0, 0, 0)), (30, (1, 1, 1, 0)), (60, (1, 0, 0, 1))))
    assert [title for title in tooltips(drawing) if " of 2: " in title] == [
        "2 of 2: ready",
        *("1 of 2: ready", "1 of 2: stops, in its grace period", "1 of 2: starts"),
        *("1 of 2: ready", "1 of 2: pending"),
    ]


def test_an_unaffected_workload_has_no_picture() -> None:
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


def test_the_page_escapes_names_and_shows_unknowns(capsys: pytest.CaptureFixture[str]) -> None:
    html.show(rehearsal((0, (2, 0, 0, 0))))
    shown = capsys.readouterr().out
    assert "&lt;web&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert not re.search(r"<(web|b)>", shown)
    assert "unknown" in shown


def with_fixes() -> Rehearsal:
    before = rehearsed(
        pending=SIX,
        lowest_ready=ZERO,
        ready_again_seconds=Figure(),
        seconds_below_budget=Figure(600, 600),
        budget="web",
        reasons=(
            HarmReason(Cause.OTHER, "0/9 nodes are available: 9 node(s) didn't match Pod's node affinity/selector"),
        ),
    )
    before = structs.replace(before, summary=RehearsalSummary(ZERO, SIX, ZERO, ZERO, ZERO))
    after = rehearsed(moved=SIX, lowest_ready=Figure(5, 5), ready_again_seconds=Figure(30, 30), budget="web")
    other = structs.replace(after.workloads[0], name="batch", pending=Figure(1, 2), replicas=4, budget="")
    summary = RehearsalSummary(SIX, Figure(1, 2), ZERO, ZERO, ZERO)
    return structs.replace(before, fixed=structs.replace(after, summary=summary, workloads=(*after.workloads, other)))


def test_the_table_has_a_column_with_the_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    table.show(with_fixes())
    lines = [re.sub(" {2,}", "  ", line) for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "With the fixes: 2 of 12 Pods stay pending."
    assert lines[4:8] == ["  as it is  with the fixes", "  moved  0  6", "  pending  6  1-2", "  missing  0  0"]
    web, batch = (lines.index(f"Deployment shop/{name}  {lost} lost") for name, lost in WORKLOADS)
    assert lines[web + 2 : web + 8] == [
        *(
            "  pending  6  0",
            "  missing  0  0",
            "  killed early  0  0",
            "  lowest ready  0  5",
            "  ready again seconds  never  30",
            "  seconds below budget  600  0",
        )
    ]
    assert lines[batch + 2 : batch + 6 : 2] == ["  pending  0  1-2", "  killed early  0  0"]


WORKLOADS = (("web", "6 of 6"), ("batch", "0 of 4"))
"""Only the fixes affect the second workload."""


def test_json_keeps_its_shape_and_adds_the_fixed_run(capsys: pytest.CaptureFixture[str]) -> None:
    result = with_fixes()
    json_format.show(structs.replace(result, fixed=None))
    alone = json.loads(capsys.readouterr().out)
    json_format.show(result)
    both = json.loads(capsys.readouterr().out)
    fixed = both.pop("withFixes")
    assert both == alone
    assert both["summary"]["pending"] == {"min": 6, "max": 6}
    assert fixed["summary"]["pending"] == {"min": 1, "max": 2}
    assert [row.keys() for row in fixed["workloads"]] == [both["workloads"][0].keys()] * 2


def test_the_page_shows_both_runs_together(capsys: pytest.CaptureFixture[str]) -> None:
    html.show(with_fixes())
    shown = re.sub(r"<[^>]*>", "", capsys.readouterr().out)
    assert re.search(r"6Pods stay pending\s+1-2with the fixes", shown)
    assert "600 → 0" in shown
    assert "4 → 5" in shown
    assert "never → 30" in shown


def test_the_page_fits_into_420_pixels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], browse: Callable[..., Seen]
) -> None:
    capacity = Capacity(2, {"cpu": 8.0, "memory": 2.0**40}, {"cpu": 4.0, "memory": 2.0**33})
    pool = PoolCapacity("h100-on-demand", before=capacity, after=capacity)
    html.show(structs.replace(with_fixes(), pools=(pool,)))
    page = re.sub(r"<meta http-equiv=[^>]*>", "", capsys.readouterr().out)  # the page allows no other script
    measure = """<script>parent.document.title = JSON.stringify([document.documentElement.scrollWidth,
      ...[...document.querySelectorAll(".wide")].flatMap(e => [e.scrollWidth, e.querySelector("td").clientWidth])])</script>"""
    framed = escape(page.replace("</body>", f"{measure}</body>"))  # a window is at least 500 pixels wide
    (tmp_path / "frame.html").write_text(f'<title></title><iframe width="420" height="900" srcdoc="{framed}"></iframe>')
    seen = browse(tmp_path / "frame.html")
    title = re.search(r"<title>(\[.*\])</title>", seen.dom)
    assert title
    assert all(300 <= width <= 420 for width in json.loads(title[1])), title[1]
