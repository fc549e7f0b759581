"""The table for reviewers: complete, with positions, in a plain log and on a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.cli.conftest import POD, SPOT_POD, SPOT_POOL
from tests.cli.test_main import PROGRAM
from webhook.formats import html as output_html
from webhook.formats import json as output_json
from webhook.formats import table as output_table
from webhook.report.additions import addition_of
from webhook.report.report import ObjectReport, Report, Result

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


FINDING = Result(
    file="deploy/web.yaml",
    line=12,
    column=5,
    api_version="v1",
    kind="Pod",
    namespace="team-a",
    name="web",
    policy="labels",
    id="reserved-labels/reserved",
    outcome="deny",
    reason="the label is wrong",
    detail="It " + "really " * 60 + "is.",
    field='metadata.labels["a/b"]',
    fix="write:\nlabels:\n  a: b",
)
PATCH: tuple[dict[str, Any], ...] = (
    {"op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 60},
    {"op": "add", "path": "/spec/nodeSelector/a~1b", "value": "c"},
    {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "spot", "operator": "Exists"}},
)


def judged(*results: Result) -> ObjectReport:
    return ObjectReport(
        file="deploy/web.yaml", line=1, kind="Pod", namespace="team-a", name="web", results=list(results)
    )


def changed(report: ObjectReport) -> ObjectReport:
    return replace(report, patch=PATCH, additions=tuple(map(addition_of, PATCH)))


def rendered(report: Report, capsys: pytest.CaptureFixture[str]) -> list[str]:
    output_table.show(report)
    return capsys.readouterr().out.splitlines()


def report_of(*results: Result) -> Report:
    return Report(objects=[changed(judged(result)) for result in results])


def test_findings_with_the_same_id_are_one_entry_with_their_first_places_and_a_fix_for_each_field() -> None:
    results = [replace(FINDING, line=line, name=f"web-{line}", detail="Why.") for line in range(1, 312)]
    other = replace(FINDING, line=400, reason="another label is wrong", detail="", fix="remove it", field="a")
    text = output_table.render(report_of(*results, other))
    head, *lines = text.splitlines()
    assert head == (
        "deny  312 x labels  reserved-labels/reserved: deploy/web.yaml:1, deploy/web.yaml:2, deploy/web.yaml:3 "
        "and 309 more; `-o table --verbose` shows all"
    )
    assert lines[:7] == [
        "    the label is wrong: deploy/web.yaml:1 and 310 more",
        "    another label is wrong: deploy/web.yaml:400",
        "    Why.",
        "    Fix for Pod team-a/web-1 at deploy/web.yaml:1: write:",
        "    labels:",
        "      a: b",
        "    Fix for Pod team-a/web at deploy/web.yaml:400: remove it",
    ]
    assert text.count("spec.terminationGracePeriodSeconds") == 1
    every = output_table.render(replace(report_of(*results, other), verbose=True))
    assert (every.count("Fix: "), every.count("spec.terminationGracePeriodSeconds"), " x " in every) == (
        312,
        312,
        False,
    )


def test_few_findings_with_the_same_id_name_their_objects() -> None:
    head, reason, *_ = output_table.render(report_of(FINDING, replace(FINDING, line=20, name="shop"))).splitlines()
    places = "deploy/web.yaml:12 Pod team-a/web, deploy/web.yaml:20 Pod team-a/shop"
    assert head == f"deny  2 x labels  reserved-labels/reserved: {places}"
    assert reason == '    the label is wrong (at metadata.labels["a/b"])'


@pytest.mark.parametrize(
    ("one", "other", "entry"),
    [
        ("few-replicas", "bare-pod", "too few copies to lose one"),
        ("readiness-probe", "disruption-budget-missing", "not ready for a reclaim"),
    ],
)
def test_equivalent_findings_are_one_entry_with_both_fixes(one: str, other: str, entry: str) -> None:
    first = replace(FINDING, id=f"spot-suitability/{one}", policy="spot-suitability", reason="r1", fix="f1", detail="")
    report = report_of(first, replace(first, id=f"spot-suitability/{other}", reason="r2", fix="f2", line=20))
    head, *lines = output_table.render(report).splitlines()
    assert head == f"deny  1 x spot-suitability  {entry}: deploy/web.yaml:12 Pod team-a/web"
    assert [line.strip().partition(" (at")[0] for line in lines[:6]] == [
        *(f"1 x spot-suitability/{one}", "r1", "Fix: f1"),
        *(f"1 x spot-suitability/{other}", "r2", "Fix: f2"),
    ]
    page = output_html.render(report)
    assert page.count("<summary><span") - page.count("badge change") == 1
    assert f"spot-suitability/{one}, spot-suitability/{other}" in page
    assert [result["id"] for result in json.loads(output_json.render(report))["results"]] == [
        f"spot-suitability/{one}",
        f"spot-suitability/{other}",
    ]


def test_totals_name_each_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Result(**{**{name: getattr(FINDING, name) for name in FINDING.__struct_fields__}, "outcome": outcome})
        for outcome in ("warn", "deny", "audit", "indeterminate", "warn")
    ]
    last = rendered(Report(objects=[judged(*results)]), capsys)[-1]
    assert last == "1 object: 1 deny, 2 warn, 1 indeterminate, 1 audit"


def test_unjudged_objects_are_counted_and_listed_in_a_file(run: Run, write: Write, policies: Path) -> None:
    write("d/bad.yaml", "apiVersion: v1\nkind: ConfigMap\na: [\n")
    write("d/pod.yaml", POD)
    shown = run("check", "d", "--policies", policies)
    assert shown.out.endswith("\n1 object: 1 deny, 1 can't be evaluated\n")
    assert shown.err.startswith("d/bad.yaml:4:1: ")
    run("check", "d", "--policies", policies, "-o", "table=out.txt")
    findings, totals = shown.out.removesuffix("\n").rsplit("\n", 1)
    assert Path("out.txt").read_text() == f"{findings}\ncan't be evaluated:\n  {shown.err}\n{totals}\n"


def test_manifest_cannot_steer_the_terminal(run: Run, write: Write, policies: Path) -> None:
    pod = POD.replace("example.com/team", '"example.com/\\e[31mred\\x07"')
    out = run("check", write("pod.yaml", pod), "--policies", policies).out
    assert "example.com/ [31mred " in out
    assert out.replace("\n", "").isprintable()


def test_manifest_cannot_give_commands_to_the_runner(run: Run, write: Write, policies: Path) -> None:
    pod = POD.replace("example.com/team", '"example.com/a\\n::warning::b"')
    out = run("check", write("::error::\x1b[2J.yaml", pod), "--policies", policies).out
    assert "example.com/a ::warning::b is " in out
    assert out.startswith(": :error:: [2J.yaml:6  deny  ")
    assert not any(line.lstrip().startswith("::") for line in out.split("\n"))


def run_in_terminal(arguments: list[str], **environment: str) -> str:
    """Return the program's output on a terminal 40 columns wide."""
    master, slave = os.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}}
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=slave,
        env={**inherited, "TERM": "xterm-256color", "COLUMNS": "40", **environment},
    )
    os.close(slave)
    output = b""
    while True:
        try:
            read = os.read(master, 65536)
        except OSError:  # Linux reports the closed other side this way
            break
        if not read:
            break
        output += read
    os.close(master)
    process.wait()
    return output.decode().replace("\r\n", "\n")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_gets_colors_and_the_same_text(run: Run, write: Write, policies: Path) -> None:
    write("all.yaml", f"{POD}---\n{SPOT_POOL}---\n{SPOT_POD}")
    arguments = ["check", "all.yaml", "--policies", str(policies)]
    plain = run(*arguments).out
    coloured = run_in_terminal(arguments)
    assert "\x1b[" in coloured
    shown = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert shown.split() == plain.split()  # prose is wrapped
    assert (
        max(len(line) for line in shown.split("\n") if line.startswith("    ") and not line.startswith("     ")) <= 40
    )
    assert run_in_terminal(arguments, NO_COLOR="1") == plain
