"""The machine-readable formats: each finding at its line, nothing lost, and output to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from msgspec.structs import replace

from tests.cli.conftest import POD, POLICIES, SPOT_POD, SPOT_POOL
from tests.cli.output.test_output import FINDING, judged
from webhook.documents import read_documents
from webhook.formats import github as output_github
from webhook.formats import policyreport as output_policyreport
from webhook.report.report import Report, team_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run


@pytest.fixture
def files(write: Callable[[str, str | bytes], Path]) -> None:
    write("policies/all.yaml", POLICIES)
    write("deploy/pod.yaml", f"# comment\n{POD}---\n{SPOT_POD}")
    write("deploy/pools.yaml", SPOT_POOL)


def spot_pod(name: str) -> Any:
    """Return the Pod of `SPOT_POD` with another name."""
    pod = yaml.safe_load(SPOT_POD)
    return {**pod, "metadata": {"name": name}}


def check(run: Run, *arguments: str) -> Any:
    return run("check", "--policies", "policies", *arguments, "deploy")


pytestmark = pytest.mark.usefixtures("files")


# SARIF


def test_a_fingerprint_is_unique_and_survives_moved_lines(run: Run) -> None:
    def fingerprints() -> list[str]:
        (ran,) = check(run, "-o", "sarif").json["runs"]
        return [result["partialFingerprints"]["spotgate/v1"] for result in ran["results"]]

    before = fingerprints()
    pod = Path("deploy/pod.yaml")
    pod.write_text("# one\n# more\n# line\n" + pod.read_text())
    assert fingerprints() == before
    assert len(set(before)) == len(before)
    pod.write_text(pod.read_text().replace("example.com/team: a", "example.com/team: a\n    example.com/other: b"))
    assert set(before) < set(fingerprints())


def test_sarif_lists_unreadable_files(run: Run) -> None:
    Path("deploy/bad.yaml").write_text("apiVersion: v1\nkind: ConfigMap\na: [\n")
    done = check(run, "-o", "sarif")
    (invocation,) = done.json["runs"][0]["invocations"]
    assert done.code == 2
    assert not invocation["executionSuccessful"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "deploy/bad.yaml"


def test_sarif_paths_are_relative_to_the_repository(run: Run) -> None:
    Path("deploy/a b%.yaml").write_text(POD)
    log = run("check", "--policies", "policies", "-o", "sarif", Path("deploy").absolute()).json
    uris = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in log["runs"][0]["results"]
    }
    assert {"deploy/a%20b%25.yaml", "deploy/pod.yaml"} <= uris


# JUnit


@pytest.mark.parametrize(
    ("fail_on", "failing"),
    [("deny", {"NodePool gpu-spot": "deny"}), ("warn", {"NodePool gpu-spot": "deny", "Pod default/trainer": "warn"})],
)
def test_junit_fails_where_the_command_does(run: Run, fail_on: str, failing: dict[str, str]) -> None:
    Path("deploy/pod.yaml").write_text(f"{SPOT_POD}  terminationGracePeriodSeconds: 3000\n")
    root = ET.fromstring(check(run, "-o", "junit", "--fail-on", fail_on).out)  # noqa: S314 - our own
    failures = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert {name: failure.get("type") for name, failure in failures.items() if failure is not None} == failing
    assert root.get("failures") == str(len(failing))


# GitHub


def test_github_annotations_cover_every_id_before_repeating_one() -> None:
    results = [replace(FINDING, line=line, id=name) for line, name in enumerate(("a", "a", "b", "a", "c"), start=1)]
    lines = output_github.render(Report(objects=[judged(*results)])).splitlines()
    assert [line.partition("line=")[2][0] for line in lines] == ["1", "3", "5", "2", "4"]


def test_github_output_counts_hidden_findings() -> None:
    many = [judged(*[replace(FINDING, outcome=outcome) for outcome in ["deny"] * 11 + ["warn"] * 10 + ["audit"] * 12])]
    lines = output_github.render(Report(objects=many)).splitlines()
    assert len(lines) == 33 + 1
    assert lines[-1] == "GitHub shows 10 errors, warnings and notices each: 3 more are only here."


# PolicyReport


def test_kubectl_reads_a_report_for_any_object_name() -> None:
    text = output_policyreport.render(Report(objects=[judged(replace(FINDING, name="y", policy="1e3"))]))
    (document,) = read_documents(text.encode(), "report.yaml")
    report: Any = document.value
    (result,) = report["results"]
    assert (result["policy"], result["resources"][0]["name"]) == ("1e3", "y")


def test_each_namespace_has_a_report_that_replaces_older_ones(run: Run) -> None:
    Path("deploy/fine.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: quiet}\n")
    Path("deploy/bad.yaml").write_text("apiVersion: v1\nkind: ConfigMap\na: [\n")
    reports = list(yaml.safe_load_all(check(run, "-o", "policyreport").out))
    named = [(item["kind"], item["metadata"].get("namespace"), item["summary"]) for item in reports]
    none = {"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0}
    assert named == [
        ("ClusterPolicyReport", None, none | {"fail": 1, "error": 1}),
        ("PolicyReport", "default", none | {"fail": 1}),
        ("PolicyReport", "quiet", none),
    ]
    (denied,) = reports[1]["results"]
    assert denied["resources"] == [{"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"}]
    assert (denied["policy"], denied["category"], denied["result"]) == ("labels", "ReservedLabels", "fail")
    assert (denied["severity"], denied["scored"], denied["properties"]["line"]) == ("high", True, "7")


def test_results_over_the_limit_go_into_the_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_policyreport, "_AT_MOST", 2)
    report = Report(objects=[judged(*[FINDING] * 5)])
    text = output_policyreport.render(report)
    reports = list(yaml.safe_load_all(text))
    assert [item["metadata"]["name"] for item in reports] == ["spotgate-check", "spotgate-check-2", "spotgate-check-3"]
    assert [item["summary"]["fail"] for item in reports] == [2, 2, 1]
    of_audit = yaml.safe_load_all(output_policyreport.render(replace(report, on_spot=[])))
    assert next(of_audit)["metadata"]["name"] == "spotgate-audit"


# HTML


def test_identical_injections_are_listed_once(run: Run) -> None:
    pods = "".join(f"- {json.dumps(pod)}\n" for pod in [spot_pod("a"), spot_pod("b")])
    Path("deploy/list.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{pods}")
    page = check(run, "-o", "html").out
    assert page.count("<pre>spec.terminationGracePeriodSeconds: ") == 1
    assert page.count("<b>Pod default/") == 1 + 3


# Teams


@pytest.mark.parametrize(
    ("labels", "of_namespace", "namespace", "team"),
    [
        ({"team": "vision", "app.kubernetes.io/part-of": "shop"}, {"team": "other"}, "research", "vision"),
        ({"example.com/team": "vision"}, {}, "research", "vision"),
        ({"b.example.com/team": "b", "a.example.com/team": "a"}, {}, "research", "a"),
        ({"app.kubernetes.io/part-of": "shop"}, {"example.com/team": "vision"}, "research", "vision"),
        ({"app.kubernetes.io/part-of": "shop"}, {}, "research", "shop"),
        ({"team": "", "team-size": "5"}, {}, "research", "research"),
        ({}, {}, "", "(none)"),
    ],
)
def test_team_of_an_object(labels: dict[str, str], of_namespace: dict[str, str], namespace: str, team: str) -> None:
    assert team_of(labels, of_namespace, namespace) == team


# Files


def test_several_formats_are_written_to_files_at_once(run: Run) -> None:
    done = check(run, "-o", "sarif=out.sarif", "-o", "junit=out.xml", "-o", "table")

    assert done.code == 1
    assert "deploy/pod.yaml:7" in done.out
    assert json.loads(Path("out.sarif").read_text()) == check(run, "-o", "sarif").json
    assert Path("out.xml").read_text() == check(run, "-o", "junit").out


def test_an_unwritable_report_is_an_error_and_leaves_no_file(run: Run) -> None:
    done = check(run, "-o", "sarif=missing/out.sarif", "-o", "table")
    assert done.code == 2
    assert "deploy/pod.yaml:7" in done.out
    assert done.err == (
        "error: -o sarif=missing/out.sarif: can't be written: No such file or directory; "
        "its folder must be there and writable; or name another file\n"
    )
