"""``spotgate explain FINDING-ID``: print what a finding means, a failing example and a mended one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cli.exits import CannotJudgeError
from webhook.cli.terminal import show
from webhook.findings import exemption_from, finding_texts, page_of
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.terminal import Line


def named_finding(paths: list[str]) -> str:
    """Return the finding id among the arguments; empty if they are paths.

    Raise CannotJudgeError if an argument looks like an id, and there is no such finding.
    """
    if len(paths) != 1 or "/" not in paths[0] or Path(paths[0]).exists():
        return ""
    (word,) = paths
    known = finding_texts()
    if word in known:
        return word
    alike = [each for each in known if each.startswith(f"{word.partition('/')[0]}/")]
    hint = did_you_mean(word, known, cutoff=0.75)
    if not hint and not alike:
        return ""
    listed = "\n  ".join(alike or known)
    raise CannotJudgeError(f"error: there is no file and no finding {word}{hint}\nthe findings are:\n  {listed}")


def show_finding(finding_id: str) -> None:
    """Print the text of the finding."""
    show(_lines(finding_id))


def _lines(finding_id: str) -> Iterator[Line]:
    text = finding_texts()[finding_id]
    parts = [
        ("Why it matters", text.matters),
        ("Found by this policy", text.policies),
        ("In the cluster", text.state),
        ("Fails", f"{_flags(text.flags)}{text.failing}" if text.failing else ""),
        ("Passes", f"{_flags(text.flags_when_mended)}{text.mended}" if text.mended else ""),
        ("How to be exempt", exemption_from(finding_id)),
        ("Page", page_of(finding_id)),
    ]
    yield [(finding_id, "bold")]
    yield [(text.means, "")]
    for title, body in parts:
        if body:
            yield []
            yield [(title, "bold")]
            yield from ([(f"  {line}", "")] for line in body.rstrip("\n").split("\n"))


def _flags(flags: str) -> str:
    return f"# spotgate check {flags}\n" if flags else ""
