"""The machine-readable formats satisfy their schemas and parsers for any finding and any user text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft202012Validator
from junitparser import JUnitXml

from tests.cli.output.reports import reports
from tests.go_modules import SARIF, go_module, policy_report_crds
from tests.golden.formats import expected_file
from webhook.formats import github as output_github
from webhook.formats import junit as output_junit
from webhook.formats import policyreport as output_policyreport
from webhook.formats import sarif as output_sarif

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.report.report import Report


@pytest.fixture(scope="module")
def sarif_problems() -> Callable[[str], list[str]]:
    """Return the errors of a log against the schema of SARIF 2.1.0."""
    source = go_module(*SARIF) / "pkg/report/v210/sarif/schema.go"
    schema = json.loads(source.read_text().partition("`")[2].rpartition("`")[0])
    validator = Draft4Validator(schema, format_checker=Draft4Validator.FORMAT_CHECKER)
    return lambda log: [f"{error.json_path}: {error.message}" for error in validator.iter_errors(json.loads(log))]


@pytest.fixture(scope="module")
def report_problems() -> Callable[[str], list[str]]:
    """Return the errors of reports against the CRD schemas, including unknown fields."""
    validators = {}
    for file in policy_report_crds().iterdir():
        crd = yaml.safe_load(file.read_text())
        (version,) = [item for item in crd["spec"]["versions"] if item["name"] == "v1alpha2"]
        validators[crd["spec"]["names"]["kind"]] = Draft202012Validator(_closed(version["schema"]["openAPIV3Schema"]))
    return lambda text: [
        f"{error.json_path}: {error.message}"
        for document in yaml.safe_load_all(text)
        for error in validators[document["kind"]].iter_errors({**document, "metadata": {}})
    ]


def _closed(schema: Any) -> Any:
    """Close the schema, so that it rejects fields that an API server would drop."""
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed


# SARIF


@pytest.mark.cluster
def test_the_golden_log_is_sarif(sarif_problems: Callable[[str], list[str]]) -> None:
    log = expected_file("sarif").read_text()
    assert sarif_problems(log) == []
    assert sarif_problems(log.replace('"startLine": ', '"startLine": -')) != []


@pytest.mark.cluster
@given(report=reports())
def test_any_log_is_sarif(sarif_problems: Callable[[str], list[str]], report: Report) -> None:
    assert sarif_problems(output_sarif.render(report)) == []


@given(report=reports())
def test_fingerprints_are_unique(report: Report) -> None:
    (ran,) = json.loads(output_sarif.render(report))["runs"]
    fingerprints = [result["partialFingerprints"]["spotgate/v1"] for result in ran["results"]]
    assert len(set(fingerprints)) == len(report.results)


# PolicyReport


@pytest.mark.cluster
def test_the_golden_reports_are_policy_reports(report_problems: Callable[[str], list[str]]) -> None:
    text = expected_file("policyreport").read_text()
    assert report_problems(text) == []
    assert report_problems(text.replace("result: warn", "result: maybe")) != []
    assert report_problems(text.replace("scored: ", "score: ")) != []


@pytest.mark.cluster
@given(report=reports())
def test_any_reports_are_policy_reports_with_correct_counts(
    report_problems: Callable[[str], list[str]], report: Report
) -> None:
    text = output_policyreport.render(report)
    assert report_problems(text) == []
    documents = list(yaml.safe_load_all(text)) if text else []
    results = [result for document in documents for result in document["results"]]
    assert len(results) == len(report.results) + len(report.unreadable)
    for document in documents:
        assert sum(document["summary"].values()) == len(document["results"])
    messages = sorted(each.reason for each in report.results) + sorted(each.text for each in report.unreadable)
    assert sorted(result["message"] for result in results) == sorted(messages)


# JUnit


def test_a_parser_reads_the_golden_tests() -> None:
    suites = JUnitXml.fromfile(str(expected_file("junit")))
    assert (suites.tests, suites.failures, suites.errors) == (9, 2, 0)
    failed = [case.name for suite in suites for case in suite if case.result]
    assert failed == ["Deployment shop/checkout", "Deployment shop/search"]


@given(report=reports())
def test_a_parser_reads_any_tests(report: Report) -> None:
    suites = JUnitXml.fromstring(output_junit.render(report).encode())
    cases = [case for suite in suites for case in suite]
    assert len(cases) == suites.tests == len(report.objects) + len(report.unreadable)
    denied = sum(any(result.outcome == "deny" for result in judged.results) for judged in report.objects)
    assert suites.failures == denied
    assert suites.errors == len(report.unreadable)


# GitHub


@given(report=reports(), name=st.sampled_from(["error", "warning", "notice"]))
def test_every_github_line_is_one_command(report: Report, name: str) -> None:
    text = output_github.render(report)
    lines = text.split("\n") if text else []
    commands = [line for line in lines if line.startswith(("::error ", "::warning ", "::notice "))]
    assert len(commands) == len(report.results) + len(report.unreadable) + len(report.warnings)
    assert all(line.isprintable() for line in lines)  # no manifest controls the log
    many = sum(line.startswith(f"::{name} ") for line in commands) > 10
    assert not many or lines[-1].startswith("GitHub shows 10 ")
    assert len(lines) - len(commands) in {0, 1}
