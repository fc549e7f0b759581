"""``explain -o html``: everything in one file that needs nothing from outside, for light and dark, without scripts."""

from __future__ import annotations

from html import escape
from textwrap import indent
from typing import TYPE_CHECKING, Final

from webhook.cli import timeline_svg
from webhook.cli.explain_svg import titled
from webhook.cli.explain_text import as_yaml, others_of
from webhook.cli.explanation import CHANGES
from webhook.cli.terminal import printable
from webhook.cli.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.cli.explanation import Addition, Explanation, Said, Verdict
    from webhook.decision import Finding

_STYLE: Final = """\
:root { color-scheme: light dark; --bg: #ffffff; --text: #1f2328; --faint: #59636e; --line: #d1d9e0; --card: #f6f8fa;
  --change: #0969da; --deny: #cf222e; --warn: #9a6700; --unknown: #8250df; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #0d1117; --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --card: #151b23;
    --change: #58a6ff; --deny: #ff7b72; --warn: #e3b341; --unknown: #d2a8ff; }
}
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--bg); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.4rem; margin: 2.5rem 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.faint { color: var(--faint); }
p { margin: .25rem 0 1rem; }
.verdict { display: grid; grid-template-columns: 6rem 1fr; gap: 0 1rem; border-top: 1px solid var(--line);
  padding: .6rem 0; }
.verdict > div { min-width: 0; overflow-wrap: anywhere; }
.word { font-weight: 600; color: var(--faint); }
.change { color: var(--change); } .deny { color: var(--deny); }
.warn { color: var(--warn); } .indeterminate, .audit { color: var(--unknown); }
ul { margin: .25rem 0; padding-left: 1.2rem; color: var(--faint); }
pre { background: var(--card); border-radius: 6px; margin: .4rem 0; padding: .5rem .75rem; overflow-x: auto;
  font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
.finding { border-left: 3px solid currentColor; margin: .5rem 0; padding-left: .75rem; }
.finding > * { color: var(--text); }
.drawing { border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0; overflow-x: auto; }
.drawing svg { display: block; min-width: 44rem; width: 100%; height: auto; }
"""


def show(explained: Iterable[Explanation]) -> None:
    """Print it."""
    print("\n".join(_page(list(explained))))


def _page(explained: list[Explanation]) -> Iterator[str]:
    title = explained[0].title if len(explained) == 1 else f"{len(explained)} objects"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>spotgate explain: {_safe(title)}</title>"
    yield f"<style>\n{_STYLE}{timeline_svg.STYLE}</style>\n</head>\n<body>"
    for each in explained:
        yield from _object(each)
    yield "</body>\n</html>"


def _object(explained: Explanation) -> Iterator[str]:
    yield f"<section>\n<h1>{_safe(explained.title)}</h1>"
    yield f'<p class="faint">{_safe(f"{explained.file}:{explained.line} {explained.operation}".rstrip())}</p>'
    for note in explained.notes:
        yield from _said(note)
    for verdict in explained.verdicts:
        yield from _verdict(verdict)
    if explained.others:
        yield f'<p class="faint">{_safe(others_of(explained))}</p>'
    drawn = list(titled(explained))
    silent = [each for each in explained.timelines if not isinstance(each, Timeline)]
    if drawn:
        yield "<h2>When the node is reclaimed</h2>"
    for title, timeline in drawn:
        yield f'<div class="drawing">\n{timeline_svg.element(title, timeline)}\n</div>'
    for each in silent:
        yield f'<p class="faint">No timeline: {_safe(": ".join(filter(None, (each.where, each.because))))}</p>'
    yield "</section>"


def _verdict(verdict: Verdict) -> Iterator[str]:
    about = ", ".join(filter(None, (verdict.kind, verdict.enforcement and f"enforcement: {verdict.enforcement}")))
    yield f'<div class="verdict">\n<div class="word {_style(verdict)}">{verdict.word}</div>\n<div>'
    yield f'<strong>{_safe(verdict.policy)}</strong> <span class="faint">{_safe(about)}</span>'
    for said in verdict.said:
        yield from _said(said)
    for addition in verdict.additions:
        yield _addition(addition)
    for finding in verdict.findings:
        yield from _finding(finding)
    yield "</div>\n</div>"


def _style(verdict: Verdict) -> str:
    if verdict.findings:
        return str(max(finding.outcome for finding in verdict.findings))
    return "change" if verdict.word == CHANGES else ""


def _said(said: Said) -> Iterator[str]:
    if said.where:
        yield f'<div class="faint">{_safe(said.where)}</div>'
    yield f"<ul>{''.join(f'<li>{_safe(step)}</li>' for step in said.steps)}</ul>"


def _addition(addition: Addition) -> str:
    value = as_yaml(addition.value)
    shown = f"\n{indent(value, '    ')}" if isinstance(addition.value, dict | list) else f" {value}"
    return f'<pre class="change">+ {_safe(addition.field)}:{_safe(shown)}</pre>'


def _finding(finding: Finding) -> Iterator[str]:
    yield f'<div class="finding {finding.outcome}">'
    yield f"<div>{_safe(finding.reason)}</div>"
    if finding.field:
        yield f'<div class="faint">at {_safe(finding.field)}</div>'
    if finding.lowered:
        yield f'<div class="faint">{_safe(finding.lowered)}</div>'
    if finding.detail:
        yield f"<div>{_safe(finding.detail)}</div>"
    if finding.fix:
        yield f"<pre>{_safe(f'Fix: {finding.fix}')}</pre>"
    yield "</div>"


def _safe(text: str) -> str:
    return "\n".join(escape(printable(line)) for line in text.split("\n"))
