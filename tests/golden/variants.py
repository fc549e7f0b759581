"""Golden wording of variants, in ``variants.txt``: messages in ``cases.yaml`` with texts that no golden message has."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import yaml

from tests.golden import messages
from tests.rules.cases import RULES, judged, load_examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.model.decision import Decision

FILE: Final = Path(__file__).parent / "variants.txt"
_ANY: Final = RULES.name


def messages_of(decision: Decision) -> str:
    """Return the messages of all findings."""
    return "\n".join(f"{finding.outcome} {finding.message()}" for finding in decision.findings)


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the policy kind and each text in the messages of its rule; `_ANY` if several kinds use it.

    Single words are names or values.
    """
    for file in RULES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield file.parent.name.replace("_", "-"), node.value
    for file in RULES.rglob("defaults.yaml"):
        for token in yaml.scan(file.read_text(), yaml.CSafeLoader):
            if isinstance(token, yaml.ScalarToken) and " " in token.value:
                yield file.parent.name.replace("_", "-"), token.value


def current(folder: Path) -> Mapping[str, str]:
    """Return, by behavior, the messages of each example with a text that no earlier message of its kind has."""
    golden: dict[str, str] = defaultdict(str)
    for finding_id, message in messages.stored().items():
        golden[_ANY] += message
        golden[finding_id.partition("/")[0]] += message
    left = {(kind, text) for kind, text in _texts() if text not in golden[kind]}
    variants: dict[str, list[str]] = defaultdict(list)
    for example in load_examples():
        if example.is_judged:
            texts = messages_of(judged(example, folder)[1])
            of_kinds = ((kind, text) for kind, text in left if kind == _ANY or f"[{kind}] " in texts)
            if new := {(kind, text) for kind, text in of_kinds if text in texts}:
                left -= new
                variants[example.name].append(texts)
    return {name: "\n\n".join(parts) for name, parts in variants.items()}


def regenerate() -> None:
    """Write the golden messages of variants."""
    with TemporaryDirectory() as folder:
        messages.write(FILE, current(Path(folder)))
