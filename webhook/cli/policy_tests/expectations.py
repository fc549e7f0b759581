"""Comparison of a case's expectations with the judgement: every difference, at the line of the expectation."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from webhook.cli.writing import write_whole
from webhook.decision import verdict_of
from webhook.documents import read_documents
from webhook.documents.yaml_writer import dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from webhook.decision import Finding
    from webhook.documents import FieldPath
    from webhook.policy.policy_test import ExpectSpec

Difference = tuple["FieldPath", str]
"""The path of an expectation below ``expect``, and how the judgement differs from it."""


def differences(
    expected: ExpectSpec, findings: tuple[Finding, ...], before: dict[str, Any], after: dict[str, Any]
) -> Iterator[Difference]:
    """Yield the differences from what a case expects; its golden file aside."""
    verdict = verdict_of(finding.outcome for finding in findings)
    if verdict is not expected.outcome:
        yield ("outcome",), f"expected {expected.outcome}, got {verdict}"
    for name, wanted, found in (
        ("policies", expected.policies, {finding.policy for finding in findings}),
        ("ids", expected.ids, {finding.id for finding in findings}),
    ):
        if wanted is not None and set(wanted) != found:
            yield (name,), f"expected {_listed(wanted)}, got {_listed(found)}"
    messages = [_flat(finding.message()) for finding in findings]
    for number, text in enumerate(expected.messages):
        if not any(_flat(text) in message for message in messages):
            yield ("messages", number), f"no finding says {text!r}"
    if expected.changed is not None and expected.changed != (before != after):
        yield ("changed",), "the object is not changed" if expected.changed else "the object is changed"
    if expected.object is not None:
        yield from _differing(expected.object, after, ("object",))


def golden_difference(file: Path, after: dict[str, Any], *, update: bool) -> str:
    """Return how the object differs from its golden file; empty if it does not.

    With ``update``, write the file instead.

    Raises:
        OSError: the file can't be written.
        DocumentError: the file can't be parsed.
        ValueError: it is to be written, and is no golden file.
    """
    try:
        documents = read_documents(file.read_bytes(), str(file))
    except FileNotFoundError:
        documents = None
    written = documents[0].value if documents and len(documents) == 1 else None
    if written == after:
        return ""
    if update:
        if documents and not (isinstance(written, dict) and written.get("kind") == after.get("kind")):
            raise ValueError(
                f"{file} holds something else than one {after.get('kind')}; remove it, or name another file"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _yaml(after).encode())
        return ""
    if documents is None:
        return f"there is no file {file}; --update writes it"
    lines = difflib.unified_diff(
        _yaml(written).splitlines(), _yaml(after).splitlines(), str(file), "what came out", lineterm=""
    )
    return "\n".join(("the object is not as in the file; --update writes it anew", *lines))


def _differing(expected: object, got: object, path: FieldPath) -> Iterator[Difference]:
    """Yield the differences between an expected part of an object and the object."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key, value in expected.items():
            if value is None and got.get(key) is not None:
                yield (*path, key), f"expected none, got {_json(got[key])}"
            elif value is not None and got.get(key) is None:
                yield (*path, key), f"expected {_json(value)}, which is not there"
            elif value is not None:
                yield from _differing(value, got[key], (*path, key))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for number, (value, item) in enumerate(zip(expected, got, strict=True)):
            yield from _differing(value, item, (*path, number))
    elif isinstance(expected, list) and isinstance(got, list):
        yield path, f"expected {len(expected)} items, got {len(got)}: {_json(got)}"
    elif type(expected) is not type(got) or expected != got:
        yield path, f"expected {_json(expected)}, got {_json(got)}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _yaml(value: object) -> str:
    return f"{dump(value, width=120)}\n"
