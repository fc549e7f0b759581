"""Show explanations and timelines as one page: ``explain -o html``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.commands.explain.svg import titled
from webhook.commands.explain.text import others_of
from webhook.pages import page
from webhook.reclaim import svg
from webhook.reclaim.pods import NoTimeline
from webhook.report.additions import as_field
from webhook.report.explanation import CHANGES, Explanation, PolicyVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable


def show(explained: Iterable[Explanation]) -> None:
    """Print the page."""
    print(
        page(
            "explain.html",
            style="drawing.css",
            explained=list(explained),
            style_of=_style_of,
            as_field=as_field,
            others_of=others_of,
            pictures=lambda explanation: [svg.draw([drawn], whole=False) for drawn in titled(explanation)],
            silences=lambda explanation: [
                str(silent) for silent in explanation.timelines if isinstance(silent, NoTimeline)
            ],
        )
    )


def _style_of(verdict: PolicyVerdict) -> str:
    if verdict.findings:
        return str(max(finding.outcome for finding in verdict.findings))
    return "change" if verdict.word == CHANGES else ""
