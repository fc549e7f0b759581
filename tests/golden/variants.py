"""Golden wording of variants, in ``variants.txt``: what rules say in ``cases.yaml`` with a text that no golden message has."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tests.golden import messages
from tests.rules.cases import RULES, judged, load_examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.model.decision import Decision

FILE: Final = Path(__file__).parent / "variants.txt"


def said(decision: Decision) -> str:
    """Return the messages of all findings."""
    return "\n".join(f"{finding.outcome} {finding.message()}" for finding in decision.findings)


def _texts() -> Iterator[str]:
    """Yield the texts in the modules of rules, of which they compose messages. Words alone are names or values."""
    for file in RULES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.value


def regenerate() -> None:
    """Write by behavior the messages of each example that has a text which none before it has."""
    golden = messages.FILE.read_text()
    left = {text for text in _texts() if text not in golden}
    variants: dict[str, list[str]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        for example in load_examples():
            if example.is_judged:
                text = said(judged(example, Path(folder))[1])
                if new := {part for part in left if part in text}:
                    left -= new
                    variants[example.name].append(text)
    messages.write(FILE, {name: "\n\n".join(texts) for name, texts in variants.items()})
