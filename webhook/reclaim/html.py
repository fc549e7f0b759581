"""Show explanations and timelines as one page: ``explain -o html``."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from markupsafe import Markup

from webhook.commands.explain.text import as_yaml, others_of
from webhook.pages import page
from webhook.pages.drawing import STYLE
from webhook.reclaim import svg
from webhook.reclaim.explanation import CHANGES
from webhook.reclaim.timeline import ReclaimTimeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.reclaim.explanation import Explanation, PolicyVerdict


def show(explained: Iterable[Explanation]) -> None:
    """Print the page."""
    print(
        page(
            "explain.html",
            style=STYLE,
            explained=list(explained),
            style_of=_style_of,
            as_field=as_field,
            others_of=others_of,
            pictures=lambda each: [Markup(svg.element(*drawn)) for drawn in svg.titled(each)],  # noqa: S704 - escaped
            silences=_silences,
        )
    )


def as_field(field: str, value: object) -> str:
    """Return a field and its value as YAML."""
    shown = as_yaml(value)
    return f"{field}:\n{indent(shown, '    ')}" if isinstance(value, dict | list) else f"{field}: {shown}"


def _style_of(verdict: PolicyVerdict) -> str:
    if verdict.findings:
        return str(max(finding.outcome for finding in verdict.findings))
    return "change" if verdict.word == CHANGES else ""


def _silences(explained: Explanation) -> Iterator[str]:
    for each in explained.timelines:
        if not isinstance(each, ReclaimTimeline):
            yield ": ".join(filter(None, (each.where, each.because)))
