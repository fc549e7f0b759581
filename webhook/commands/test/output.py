"""Write the results of policy tests: text for people, JUnit and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base import terminal
from webhook.base.terminal import counted, plain
from webhook.formats.junit import JUnitCase, junit
from webhook.offline.report import alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.base.terminal import Line
    from webhook.commands.test.coverage import Covered
    from webhook.commands.test.run import CaseResult
    from webhook.policy.errors import Problem


class PolicyTestReport(msgspec.Struct, frozen=True):
    """The results of all cases against these policies, tests that could not be run, and coverage if asked for."""

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
                "findings": [
                    {**msgspec.to_builtins(finding), "outcome": str(finding.outcome)} for finding in each.findings
                ],
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


def _junit(report: PolicyTestReport) -> str:
    """Return the report as JUnit XML: a suite for each file, a test case for each case."""
    files = alike(report.results, lambda each: each.file)
    suites = [(file, list(map(_junit_case, results))) for file, results in files.items()]
    for each in report.problems:
        said = {"message": each.text, "sort": "unreadable", "text": str(each)}
        suites.append((each.file, [JUnitCase(name="can be read", verdict="error", seconds=0, **said)]))
    return junit("spotgate test", suites)


def _junit_case(result: CaseResult) -> JUnitCase:
    case = JUnitCase(name=f"{result.test}: {result.case}", seconds=result.seconds)
    wrong = result.problems or result.mismatches
    said = "; ".join(each.text for each in wrong)
    if result.problems:
        text = "\n".join(map(str, result.problems))
        return replace(case, verdict="error", sort="unjudged", message=said, text=text)
    if result.mismatches:
        return replace(case, verdict="failure", sort="failed", message=said, text=plain(_failure(result)))
    return case


FORMATS: Final[dict[str, Callable[[PolicyTestReport], str]]] = {"junit": _junit, "json": _json}
