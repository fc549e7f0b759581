"""Output of policy tests: text for people, JUnit and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from webhook.cli import terminal
from webhook.cli.output.junit import xml_text
from webhook.cli.terminal import counted, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from webhook.cli.policy_tests.coverage import Covered
    from webhook.cli.policy_tests.run import CaseResult
    from webhook.cli.terminal import Line
    from webhook.decision import Finding
    from webhook.policy.errors import Problem


class PolicyTestReport(msgspec.Struct, frozen=True):
    """Hold the results of all cases.

    Attributes:
        policies: the policies that were tested, for people.
        problems: tests that could not be read or run.
        coverage: the coverage of each policy; None if it is not wanted.
    """

    policies: str
    results: list[CaseResult]
    problems: list[Problem]
    coverage: list[Covered] | None

    def count(self) -> tuple[int, int, int]:
        """Count the cases that passed, failed, and could not be judged."""
        unjudged = sum(bool(result.problems) for result in self.results)
        passed = sum(result.passed for result in self.results)
        return passed, len(self.results) - passed - unjudged, unjudged


def show(report: PolicyTestReport) -> None:
    """Print the report for people: in colour on a terminal that wants it, else plain."""
    terminal.show(_lines(report))


def _lines(report: PolicyTestReport) -> Iterator[Line]:
    for result in report.results:
        if result.mismatches:
            yield from _failure(result)
            yield []
    if report.coverage is not None:
        yield from _coverage(report.coverage)
        yield []
    passed, failed, unjudged = report.count()
    counts = ((passed, "passed"), (failed, "failed"), (unjudged, "could not be judged"))
    told = ", ".join(f"{number} {what}" for number, what in counts if number) or "nothing was tested"
    yield [(f"{counted(len(report.results), 'case')} against {report.policies}: {told}", "")]


def _failure(result: CaseResult) -> Iterator[Line]:
    yield [(f"{result.file}:{result.line}", "bold"), ("  FAILED", "bold red"), (f"  {result.test}: {result.case}", "")]
    for each in result.mismatches:
        field = each.field.rpartition("expect.")[2]
        yield from _indented(f"{each.file}:{each.line}: {field}: {each.text}", "    ")
    if result.findings:
        yield [("    What was found:", "")]
    for finding in result.findings:
        yield from _indented(f"{finding.outcome}: {finding.message()}", "      ")
    if result.silent or not result.findings:
        yield [(f"    Nothing was found{':' if result.silent else '.'}", "")]
    for text in result.silent:
        yield from _indented(text, "      ")


def _coverage(policies: list[Covered]) -> Iterator[Line]:
    yield [("Coverage: how many cases a policy acts in, and how many objects it leaves alone", "")]
    width = max((len(each.policy) for each in policies), default=0)
    for each in policies:
        name = f"{each.policy:<{width}}"
        yield [(f"  {name}  {each.kind}: acts {each.acted}, leaves alone {each.passed}", "")]
        for text in each.unreached:
            yield [(f"    {each.file}:{each.line}: {text}", "")]


def _indented(text: str, indent: str) -> Iterator[Line]:
    for line in text.split("\n"):
        yield [(f"{indent}{line}", "")]


def _json(report: PolicyTestReport) -> str:
    """Return the report as JSON."""
    passed, failed, unjudged = report.count()
    value: dict[str, Any] = {
        "policies": report.policies,
        "cases": [
            {
                "file": each.file,
                "line": each.line,
                "test": each.test,
                "case": each.case,
                "passed": each.passed,
                "mismatches": msgspec.to_builtins(each.mismatches),
                "problems": msgspec.to_builtins(each.problems),
                "findings": list(map(_finding, each.findings)),
            }
            for each in report.results
        ],
        "problems": msgspec.to_builtins(report.problems),
        "warnings": [msgspec.to_builtins(warning) for each in report.results for warning in each.warnings],
        "summary": {"cases": len(report.results), "passed": passed, "failed": failed, "unjudged": unjudged},
    }
    if report.coverage is not None:
        value["coverage"] = msgspec.to_builtins(report.coverage)
    return terminal.as_json(value)


def _finding(finding: Finding) -> dict[str, Any]:
    return {**msgspec.to_builtins(finding), "outcome": str(finding.outcome)}


def junit(report: PolicyTestReport) -> str:
    """Return the report as JUnit XML: a suite for each file, a test case for each case.

    Source: the schema that Jenkins and GitLab read, https://github.com/testmoapp/junitxml
    """
    passed, failed, unjudged = report.count()
    broken = len(report.problems)
    seconds = sum(result.seconds for result in report.results)
    total = _counts(passed + failed + unjudged + broken, failed, unjudged + broken, seconds)
    root = Element("testsuites", {"name": "spotgate test", **total})
    for file in dict.fromkeys(result.file for result in report.results):
        _suite(root, file, [result for result in report.results if result.file == file])
    for problem in report.problems:
        suite = SubElement(root, "testsuite", {"name": xml_text(problem.file), **_counts(1, 0, 1, 0)})
        case = SubElement(suite, "testcase", name="can be read", classname=xml_text(problem.file), time=_time(0))
        SubElement(case, "error", message=xml_text(problem.text), type="unreadable").text = xml_text(str(problem))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True)


def _suite(root: Element, file: str, results: Sequence[CaseResult]) -> None:
    failed = sum(bool(result.mismatches) for result in results)
    unjudged = sum(bool(result.problems) for result in results)
    counts = _counts(len(results), failed, unjudged, sum(result.seconds for result in results))
    suite = SubElement(root, "testsuite", {"name": xml_text(file), **counts})
    for result in results:
        of = {"name": xml_text(f"{result.test}: {result.case}"), "classname": xml_text(file), "file": xml_text(file)}
        case = SubElement(suite, "testcase", {**of, "time": _time(result.seconds)})
        if result.problems:
            said = "; ".join(problem.text for problem in result.problems)
            error = SubElement(case, "error", message=xml_text(said), type="unjudged")
            error.text = xml_text("\n".join(map(str, result.problems)))
        elif result.mismatches:
            said = "; ".join(each.text for each in result.mismatches)
            SubElement(case, "failure", message=xml_text(said), type="failed").text = xml_text(plain(_failure(result)))


def _counts(tests: int, failures: int, errors: int, seconds: float) -> dict[str, str]:
    counts = {"tests": tests, "failures": failures, "errors": errors}
    return {**{name: str(count) for name, count in counts.items()}, "time": _time(seconds)}


def _time(seconds: float) -> str:
    return f"{seconds:.6f}"


FORMATS: Final[dict[str, Callable[[PolicyTestReport], str]]] = {"junit": junit, "json": _json}
