"""``check -o html``: the page is complete, escapes all text, and is searchable in a real browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.cli.output.reports import HOSTILE, reports
from tests.cli.output.test_output import FINDING, judged
from tests.golden import formats
from webhook.base.text import printable
from webhook.commands import main
from webhook.formats import html as output_html
from webhook.report.report import ObjectReport, Report, Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser import Seen

VOID: Final = frozenset({"meta", "input"})
HEAD: Final = {"html", "head", "meta", "title", "style", "body", "script"}
CHECKOUT: Final = "Deployment shop/checkout"
SEARCH: Final = "Deployment shop/search"


class Page(HTMLParser):
    """The elements, attributes, and texts of a page; elements must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.places: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def names(self) -> set[str]:
        """Return the names of the attributes."""
        return {name for name, _ in self.attributes}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        names = dict(attrs).keys()
        if tag == "li" and "data-team" in names:
            self.places += [] if "hidden" in names else [""]
            self.in_place = "hidden" not in names
        elif tag == "li":
            self.in_place = False

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "li" in self.open and self.in_place:
            self.places[-1] += data


@given(report=reports())
def test_user_text_is_escaped(report: Report) -> None:
    page, known = Page(output_html.render(report)), Page(formats.expected_file("html").read_text())

    assert set(page.elements) <= {*known.elements, *HEAD}
    assert page.elements.count("script") == page.elements.count("style") == 1
    assert page.names <= {*known.names, "lang", "charset", "content", "http-equiv"}
    assert all((value or "").startswith("#") for name, value in page.attributes if name == "href")


@given(report=reports())
def test_the_page_is_complete_without_its_script(report: Report) -> None:
    page = Page(output_html.render(report).partition("<script>")[0] + "</body></html>")
    text = "".join(page.texts)
    for result in report.results:
        for value in (result.reason, result.detail, result.fix, result.field):
            assert "\n".join(map(printable, value.split("\n"))).replace("\r", "\n") in text
    for problem in (*report.unreadable, *report.warnings):
        assert printable(problem.text) in text.replace("\n", " ")
    changed = [judged for judged in report.objects if judged.additions]
    assert len(page.places) == len(report.results) + len(changed)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Return the page of the golden repository."""
    file = tmp_path / "report.html"
    file.write_text(formats.report("html"))
    return file


def test_a_browser_shows_everything_without_console_messages(golden: Path, browse: Callable[..., Seen]) -> None:
    seen = browse(golden)
    assert seen.console == []
    assert "<output>all 10 findings</output>" in seen.dom
    assert '<form role="search" aria-label="Findings">' in seen.dom
    assert '<a href="#namespace=shop">shop</a>' in seen.dom
    assert len(Page(seen.dom).places) == 10 + 1 + 4  # findings, a timeline, and injected fields


@pytest.mark.parametrize(
    ("asked", "count", "objects"),
    [
        ("q=readiness&team=shop", "1 of 10", [SEARCH]),
        ("namespace=shop&outcome=deny", "2 of 10", [CHECKOUT, SEARCH]),
        ("team=%28none%29", "1 of 10", ["Node g137a10"]),
    ],
)
def test_a_browser_applies_the_search_in_the_address(
    golden: Path, browse: Callable[..., Seen], asked: str, count: str, objects: list[str]
) -> None:
    seen = browse(golden, asked)
    assert seen.console == []
    assert f"<output>{count} findings</output>" in seen.dom
    assert [place.partition(" deploy/")[0] for place in Page(seen.dom).places] == objects


def test_a_browser_runs_no_user_text(tmp_path: Path, browse: Callable[..., Seen]) -> None:
    results = [
        Result(
            file=text,
            line=1,
            column=1,
            api_version="v1",
            kind=text,
            namespace=text,
            name=text,
            policy=text,
            id=text,
            outcome="deny",
            reason=text,
            detail=text,
            field=text,
            fix=text,
        )
        for text in HOSTILE
    ]
    objects = [
        ObjectReport(
            file=item.file, line=1, kind=item.kind, namespace=item.name, name=item.name, results=[item], team=item.name
        )
        for item in results
    ]
    file = tmp_path / "report.html"
    file.write_text(output_html.render(Report(objects=objects)))
    seen = browse(file, "q=script")
    assert seen.console == []
    assert f"<output>2 of {len(HOSTILE)} findings</output>" in seen.dom
    assert "<img" not in seen.dom


def test_a_page_blocks_other_scripts_and_makes_no_requests(golden: Path, browse: Callable[..., Seen]) -> None:
    more = '<script>document.title = "taken"</script><img src="http://127.0.0.1:9/x"></main>'
    golden.write_text(golden.read_text().replace("</main>", more))
    seen = browse(golden)
    assert len([line for line in seen.console if "Content Security Policy" in line]) == 2
    assert "<title>spotgate check: 2 of 9 objects would be denied</title>" in seen.dom


def test_a_page_of_ten_thousand_findings_opens_and_is_searchable(tmp_path: Path, browse: Callable[..., Seen]) -> None:
    objects = [
        replace(judged(replace(FINDING, name=f"app-{number}", fix=f"for {number % 100}")), name=f"app-{number}")
        for number in range(10_000)
    ]
    file = tmp_path / "report.html"
    file.write_text(output_html.render(Report(objects=objects)))
    seen = browse(file, "q=app-999 wrong")
    assert seen.console == []
    assert "<output>11 of 10000 findings</output>" in seen.dom


def test_an_explanation_opens_in_a_browser(
    tmp_path: Path, browse: Callable[..., Seen], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(formats.HERE)
    main(["explain", "--state", "cluster", "--state", "deploy/pools.yaml", "-o", "html", "deploy/research"])
    file = tmp_path / "explained.html"
    file.write_text(capsys.readouterr().out)
    seen = browse(file)
    assert seen.console == []
    assert "Job research/trainer" in seen.dom
    assert len(re.findall("<svg ", seen.dom)) == 2
