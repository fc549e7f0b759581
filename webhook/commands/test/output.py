"""Format the results of policy tests as text, JUnit, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from webhook.base.terminal import Line, as_json, counted, plain
from webhook.formats.junit import JUnitCase, junit
from webhook.report.report import alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.commands.test.coverage import Covered
    from webhook.commands.test.run import CaseResult
    from webhook.policy.errors import Problem


_MEMBERS: Final = ("file", "line", "test", "case", "passed", "mismatches", "problems")
"""Attributes of a `CaseResult` that JSON shows as they are."""


class PolicyTestReport(Struct, frozen=True):
    """The results of all cases against these policies, the problems of unreadable tests, and the requested coverage."""

    policies: str
    results: list[CaseResult]
    problems: list[Problem]
    coverage: list[Covered] | None

    def count(self) -> tuple[int, int, int]:
        """Count the cases that passed, failed, and can't be evaluated."""
        unjudged = sum(bool(result.problems) for result in self.results)
        passed = sum(result.passed for result in self.results)
        return passed, len(self.results) - passed - unjudged, unjudged


def lines_of(report: PolicyTestReport) -> Iterator[Line]:
    """Yield the report as text."""
    for result in report.results:
        if result.mismatches:
            yield from _failure(result)
            yield []
    if report.coverage is not None:
        yield from _coverage(report.coverage)
        yield []
    passed, failed, unjudged = report.count()
    counts = ((passed, "passed"), (failed, "failed"), (unjudged, "could not be evaluated"))
    totals = ", ".join(f"{number} {what}" for number, what in counts if number) or "nothing was tested"
    yield [(f"{counted(len(report.results), 'case')} against {report.policies}: {totals}", "")]


def _failure(result: CaseResult) -> Iterator[Line]:
    yield [(f"{result.file}:{result.line}", "bold"), ("  FAILED", "bold red"), (f"  {result.test}: {result.case}", "")]
    for mismatch in result.mismatches:
        field = mismatch.field.rpartition("expect.")[2]
        yield from _indented(f"{mismatch.file}:{mismatch.line}: {field}: {mismatch.text}", "    ")
    if result.findings:
        yield [("    Findings:", "")]
    for finding in result.findings:
        yield from _indented(f"{finding.outcome}: {finding.message()}", "      ")
    if result.silent or not result.findings:
        yield [(f"    Nothing was found{':' if result.silent else '.'}", "")]
    for text in result.silent:
        yield from _indented(text, "      ")


def _coverage(policies: list[Covered]) -> Iterator[Line]:
    yield [("Coverage: how many cases a policy acts in, and how many objects it leaves alone", "")]
    width = max((len(covered.policy) for covered in policies), default=0)
    for covered in policies:
        name = f"{covered.policy:<{width}}"
        yield [(f"  {name}  {covered.kind}: acts {covered.acted}, leaves alone {covered.passed}", "")]
        for text in covered.unreached:
            yield [(f"    {covered.file}:{covered.line}: {text}", "")]


def _indented(text: str, indent: str) -> Iterator[Line]:
    for line in text.split("\n"):
        yield [(f"{indent}{line}", "")]


def _json(report: PolicyTestReport) -> str:
    """Return the report as JSON."""
    passed, failed, unjudged = report.count()
    value: dict[str, Any] = {
        "policies": report.policies,
        "cases": [
            {name: getattr(result, name) for name in _MEMBERS}
            | {"findings": [{**to_builtins(finding), "outcome": str(finding.outcome)} for finding in result.findings]}
            for result in report.results
        ],
        "problems": report.problems,
        "warnings": [warning for result in report.results for warning in result.warnings],
        "summary": {"cases": len(report.results), "passed": passed, "failed": failed, "unjudged": unjudged},
    }
    if report.coverage is not None:
        value["coverage"] = report.coverage
    return as_json(value)


def _junit(report: PolicyTestReport) -> str:
    """Return the report as JUnit XML: a suite for each file, and a test case for each case."""
    files = alike(report.results, lambda result: result.file)
    suites = [(file, list(map(_junit_case, results))) for file, results in files.items()]
    case = JUnitCase(name="can be read", verdict="error", sort="unreadable", seconds=0)
    suites += [(problem.file, [replace(case, message=problem.text, text=str(problem))]) for problem in report.problems]
    return junit("spotgate test", suites)


def _junit_case(result: CaseResult) -> JUnitCase:
    case = JUnitCase(name=f"{result.test}: {result.case}", seconds=result.seconds)
    wrong = result.problems or result.mismatches
    message = "; ".join(problem.text for problem in wrong)
    if result.problems:
        text = "\n".join(map(str, result.problems))
        return replace(case, verdict="error", sort="unjudged", message=message, text=text)
    if result.mismatches:
        return replace(case, verdict="failure", sort="failed", message=message, text=plain(_failure(result)))
    return case


FORMATS: Final[dict[str, Callable[[PolicyTestReport], str]]] = {"junit": _junit, "json": _json}
