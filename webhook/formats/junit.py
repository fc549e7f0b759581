"""Write JUnit XML: a suite for each file, and a test case for each object: ``check -o junit``.

A test case fails according to ``--fail-on``. `junit` writes the test cases of any command.
Source: the schema of Jenkins and GitLab, https://github.com/testmoapp/junitxml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from webhook.formats import Format
from webhook.model.decision import Outcome
from webhook.report.report import ObjectReport, Report, Result, alike, title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.policy.errors import Problem

_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""The characters that XML 1.0 doesn't allow."""


class JUnitCase(msgspec.Struct, frozen=True, kw_only=True):
    """A test case.

    Attributes:
        verdict: ``failure``, ``error``, or empty for a pass. ``message``, ``sort``, and ``text`` describe it.
        out: further output.
        seconds: the duration, if measured.
    """

    name: str
    verdict: str = ""
    message: str = ""
    sort: str = ""
    text: str = ""
    out: str = ""
    seconds: float | None = None


def junit(name: str, suites: Sequence[tuple[str, Sequence[JUnitCase]]]) -> str:
    """Return a report of suites: one for each file, with its test cases."""
    root = Element("testsuites", {"name": name} | _counts([case for _, cases in suites for case in cases]))
    for file, cases in suites:
        path = _text(file)
        suite = SubElement(root, "testsuite", {"name": path} | _counts(cases))
        for case in cases:
            time = _counts([case]).get("time", "0")
            element = SubElement(suite, "testcase", name=_text(case.name), classname=path, file=path, time=time)
            if case.verdict:
                verdict = SubElement(element, case.verdict, message=_text(case.message), type=case.sort)
                verdict.text = _text(case.text)
            if case.out:
                SubElement(element, "system-out").text = _text(case.out)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True)


def _counts(cases: Sequence[JUnitCase]) -> dict[str, str]:
    verdicts = [case.verdict for case in cases]
    seconds = [case.seconds for case in cases if case.seconds is not None]
    counts = {"tests": len(cases), "failures": verdicts.count("failure"), "errors": verdicts.count("error")}
    return {name: str(count) for name, count in counts.items()} | ({"time": f"{sum(seconds):.6f}"} if seconds else {})


def _text(text: str) -> str:
    """Replace each character that XML doesn't allow."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def render(report: Report) -> str:
    """Return the report as XML."""
    files = alike(report.objects, lambda judged: judged.file)
    suites = [(file, [_case(judged, report) for judged in objects]) for file, objects in files.items()]
    return junit("spotgate check", [*suites, *((problem.file, [_unread(problem)]) for problem in report.unreadable)])


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


def _unread(problem: Problem) -> JUnitCase:
    where = f"{problem.file}:{problem.line}:{problem.column}"
    return JUnitCase(name="can be evaluated", verdict="error", message=problem.text, sort="unreadable", text=where)


def _shown(result: Result) -> str:
    where = f"{result.file}:{result.line}:{result.column}"
    return f"{where}: {result.outcome} [{result.policy}] [{result.id}]\n{result.reason}\n{result.explanation()}"


FORMAT: Final = Format(about="test reports: a suite for each file, a case for each object", render=render)
