"""Comparison of a case's expectations with the judgement, and why policies found nothing in it."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from webhook.cli.explain.explanation import EXEMPTS, SKIPS, steps_of, verdict_on
from webhook.cli.writing import write_whole
from webhook.decision import verdict_of
from webhook.documents import read_documents
from webhook.documents.yaml_writer import dump

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from webhook.cli.judging.judge import Judgement
    from webhook.decision import Finding
    from webhook.documents import FieldPath
    from webhook.index import Index
    from webhook.manifests.objects import Manifest
    from webhook.policy.policy_test import ExpectSpec
    from webhook.review import Request

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
            both = (", ".join(sorted(each)) or "none" for each in (set(wanted), found))
            yield (name,), "expected {}, got {}".format(*both)
    messages = [_flat(finding.message()) for finding in findings]
    for number, text in enumerate(expected.messages):
        if not any(_flat(text) in message for message in messages):
            yield ("messages", number), f"no finding says {text!r}"
    if expected.changed is not None and expected.changed != (before != after):
        yield ("changed",), "the object is not changed" if expected.changed else "the object is changed"
    if expected.object is not None:
        yield from _differing(expected.object, after, ("object",))


def golden_difference(file: Path, after: dict[str, Any], *, update: bool) -> str:
    """Return how the object differs from its golden file; empty if it does not, or the file is written (``update``).

    Raise OSError if it can't be written, DocumentError if it can't be parsed, ValueError if it is no golden file.
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
            kind = after.get("kind")
            raise ValueError(f"{file} holds something else than one {kind}; remove it, or name another file")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _yaml(after).encode())
        return ""
    if documents is None:
        return f"there is no file {file}; --update writes it"
    both = (_yaml(written).splitlines(), _yaml(after).splitlines())
    lines = difflib.unified_diff(*both, str(file), "what came out", lineterm="")
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


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _yaml(value: object) -> str:
    return f"{dump(value, width=120)}\n"


def silent(manifest: Manifest, judgement: Judgement, index: Index, names: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each policy that neither found nor changed anything.

    Empty ``names`` stand for all policies for this kind of object.
    """
    trace = judgement.trace
    if trace is None:
        return
    left_out = {policy.name: why for policy, why in index.left_out(trace.request)}
    steps = steps_of(trace)
    of_all = "; ".join(text for (policy, _), texts in steps.items() if not policy for text in texts)
    for policy in index.policies:
        if names and policy.name not in names:
            continue
        if policy.name in left_out:
            if why := left_out[policy.name] or (names and f"it never looks at {_resource(trace.request)}"):
                yield f"{policy.name} {SKIPS}: {why}"
            continue
        verdict = verdict_on(policy, steps, manifest, judgement, trace)
        if not verdict.findings and not verdict.additions:
            # Of a policy that skips or exempts the object the last step says why.
            last = slice(-1, None) if verdict.word in {SKIPS, EXEMPTS} else slice(None)
            said = (": ".join(filter(None, (each.where, "; ".join(each.steps[last])))) for each in verdict.said)
            yield f"{policy.name} {verdict.word}: {'; '.join(said) or of_all}".removesuffix(": ")


def matched_by_none(judgement: Judgement, index: Index) -> str:
    """Return a phrase if all policies are for other kinds of objects; empty if one is for this kind."""
    trace = judgement.trace
    if trace is None:
        return ""
    left_out = index.left_out(trace.request)
    if len(left_out) < len(index.policies) or any(why for _, why in left_out):
        return ""
    names = ", ".join(policy.name for policy in index.policies)
    return f"{names} never look{'s' * (len(index.policies) == 1)} at {_resource(trace.request)}"


def _resource(request: Request) -> str:
    return ".".join(filter(None, (request.path, request.resource.group)))
