"""``check -o junit``: a suite for each file, a test case for each object, which fails as ``--fail-on`` says.

Source: the schema that Jenkins and GitLab read, https://github.com/testmoapp/junitxml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from webhook.cli.output import Format
from webhook.cli.report import title_of
from webhook.decision import Outcome

if TYPE_CHECKING:
    from webhook.cli.report import Report, Result

_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""Characters that XML 1.0 can't write."""


def render(report: Report) -> str:
    """Return the report as XML."""
    root = Element("testsuites", name="spotgate check")
    suites: dict[str, Element] = {}
    for each in report.objects:
        suite = suites.get(each.file)
        if suite is None:
            suite = suites[each.file] = SubElement(root, "testsuite", name=xml_text(each.file))
        _case(suite, xml_text(each.file), xml_text(title_of(each)), each.results, report)
    for problem in report.unreadable:
        suite = SubElement(root, "testsuite", name=xml_text(problem.file), tests="1", failures="0", errors="1")
        case = SubElement(suite, "testcase", name="can be judged", classname=xml_text(problem.file), time="0")
        error = SubElement(case, "error", message=xml_text(problem.text), type="unreadable")
        error.text = xml_text(f"{problem.file}:{problem.line}:{problem.column}")
    for suite in suites.values():
        _count(suite)
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in root)))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True)


def _case(suite: Element, file: str, name: str, results: list[Result], report: Report) -> None:
    case = SubElement(suite, "testcase", name=name, classname=file, file=file, time="0")
    failing = [result for result in results if report.fails(result)]
    if failing:
        message = "; ".join(dict.fromkeys(result.reason for result in failing))
        weightiest = max((result.outcome for result in failing), key=lambda outcome: Outcome[outcome.upper()])
        failure = SubElement(case, "failure", message=xml_text(message), type=weightiest)
        failure.text = xml_text("\n\n".join(map(_shown, failing)))
    others = [result for result in results if not report.fails(result)]
    if others:
        SubElement(case, "system-out").text = xml_text("\n\n".join(map(_shown, others)))


def _count(suite: Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")


def _shown(result: Result) -> str:
    where = f"{result.file}:{result.line}:{result.column}"
    return f"{where}: {result.outcome} [{result.policy}] [{result.id}]\n{result.reason}\n{result.explanation()}"


def xml_text(text: str) -> str:
    """Return the text, with a replacement character for each that XML can't write."""
    return _NO_XML.sub("�", text)


FORMAT: Final = Format(
    about="test reports: a suite for each file, a case for each object, which fails as `--fail-on` says",
    render=render,
)
