"""Write a suite for each file, a test case for each object, which fails as ``--fail-on`` says: ``check -o junit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.formats import Format
from webhook.formats.junit_cases import JUnitCase, junit
from webhook.model.decision import Outcome
from webhook.offline.report import alike, title_of

if TYPE_CHECKING:
    from webhook.offline.report import ObjectReport, Report, Result
    from webhook.policy.errors import Problem


def render(report: Report) -> str:
    """Return the report as XML."""
    files = alike(report.objects, lambda each: each.file)
    suites = [(file, [_case(each, report) for each in objects]) for file, objects in files.items()]
    return junit("spotgate check", [*suites, *((each.file, [_unreadable(each)]) for each in report.unreadable)])


def _case(judged: ObjectReport, report: Report) -> JUnitCase:
    failing = [result for result in judged.results if report.fails(result)]
    others = [result for result in judged.results if not report.fails(result)]
    weightiest = max((Outcome[result.outcome.upper()] for result in failing), default="")
    return JUnitCase(
        name=title_of(judged),
        verdict="failure" if failing else "",
        message="; ".join(dict.fromkeys(result.reason for result in failing)),
        sort=str(weightiest),
        text="\n\n".join(map(_shown, failing)),
        out="\n\n".join(map(_shown, others)),
    )


def _unreadable(problem: Problem) -> JUnitCase:
    where = f"{problem.file}:{problem.line}:{problem.column}"
    return JUnitCase(name="can be judged", verdict="error", message=problem.text, sort="unreadable", text=where)


def _shown(result: Result) -> str:
    where = f"{result.file}:{result.line}:{result.column}"
    return f"{where}: {result.outcome} [{result.policy}] [{result.id}]\n{result.reason}\n{result.explanation()}"


FORMAT: Final = Format(
    about="test reports: a suite for each file, a case for each object, which fails as `--fail-on` says",
    render=render,
)
