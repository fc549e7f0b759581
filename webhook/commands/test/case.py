"""Build the request of a test case, and compare its judgement with the expectations."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.base.reading import read_file
from webhook.base.writing import write_whole
from webhook.documents import read_documents
from webhook.documents.yaml_writer import dump
from webhook.inputs.objects import Manifest, problem_with
from webhook.model.decision import Finding, verdict_of
from webhook.model.patch import merge_patch
from webhook.report.explanation import EXEMPTS, OVERRIDDEN, SKIPS, steps_by_policy, verdict_on

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from webhook.base.field_paths import FieldPath
    from webhook.engine.index import Index
    from webhook.judging.judge import Judgement
    from webhook.judging.kinds import ResourceKinds
    from webhook.policy.document import PolicyDocument
    from webhook.policy.policy_test import CaseSpec, ExpectSpec, PolicyTestSpec


FAILED: Final = "validation/error"
"""The id of a failed expression: the outcome may be the expected one, but not by the rule's decision."""


class CannotRunError(Exception):
    """A case that contradicts itself, or needs an unreadable file. The arguments are the problems."""


class PolicyTestCase:
    """One case of a PolicyTest, completed with the document's shared fields."""

    def __init__(self, test: PolicyDocument, number: int) -> None:
        self.test = test
        self._shared: PolicyTestSpec = test.spec
        self._own = self._shared.cases[number]
        self._path: FieldPath = ("spec", "cases", number)
        self.line = test.document.position(self._path)[0]
        self.spec: CaseSpec = self._shared.filled(self._own)

    def at(self, field: str, *path: str | int) -> FieldPath:
        """Return the path of a field: in the case, or in the document's shared fields."""
        shared = field not in self._own.model_fields_set and field in self._shared.model_fields_set
        return ("spec", field, *path) if shared else (*self._path, field, *path)

    def cannot_run(self, path: FieldPath, text: str) -> CannotRunError:
        """Return an error at this path."""
        return CannotRunError(self.test.problem(path, text))

    @property
    def operation(self) -> str:
        """Return the operation of the request. Raise CannotRunError if it contradicts the objects."""
        changes = self._own.old_object is not None
        operation = self.spec.operation or ("UPDATE" if changes else "CREATE")
        if operation == "CREATE" and changes:
            raise self.cannot_run(self.at("oldObject"), "there is none before a CREATE; remove it, or write UPDATE")
        if operation == "UPDATE" and not changes:
            text = "UPDATE needs `oldObject`, what it changes; `oldObject: {}` if that is the document's object"
            raise self.cannot_run(self.at("operation"), text)
        if operation == "DELETE" and changes and self._own.object is not None:
            raise self.cannot_run(self.at("oldObject"), "DELETE has one object; write it as `oldObject` or as `object`")
        return operation

    def subject(self, kinds: ResourceKinds) -> Manifest:
        """Return the object of the request. For a DELETE, this is the deleted object.

        Raise CannotRunError if it is missing or invalid.
        """
        deleted = self.operation == "DELETE" and self._own.object is None and self._own.old_object is not None
        subject = self._manifest("old_object" if deleted else "object", kinds)
        if kinds.resource(subject) is None and not kinds.meant(subject):
            text = f"the resource of kind {subject.kind} of {subject.api_version} is unknown; "
            fix = "correct the kind, or add its CustomResourceDefinition to the state"
            raise self.cannot_run((*subject.path, "kind"), text + fix)
        return subject

    def before(self, kinds: ResourceKinds) -> Manifest | None:
        """Return the old object of an UPDATE, or None for other operations. Raise CannotRunError like `subject`."""
        return self._manifest("old_object", kinds) if self.operation == "UPDATE" else None

    def namespace(self) -> Manifest | None:
        """Return the Namespace, or None if the case sets no labels."""
        spec = self.spec.namespace
        if spec is None or spec.labels is None:
            return None
        metadata = {"name": spec.name, "labels": spec.labels}
        value = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        return Manifest(self.test.document, self.at("namespace"), "v1", "Namespace", value)

    def inline_state(self) -> list[Manifest]:
        """Return the state's inline objects. Raise CannotRunError if one is invalid."""
        document, objects = self.test.document, self.spec.state.objects if self.spec.state is not None else ()
        paths = (self.at("state", "objects", number) for number in range(len(objects)))
        written = zip(paths, objects, strict=True)
        return [_read(Manifest(document, path, body.api_version, body.kind, body.written())) for path, body in written]

    def _manifest(self, field: str, kinds: ResourceKinds) -> Manifest:
        shared = self._shared.object
        own = getattr(self._own, field)
        name = "oldObject" if field == "old_object" else "object"
        if own is None and shared is None:
            raise self.cannot_run(self._path, f"has no `{name}`, and the document has no `object` for all cases")
        value: dict[str, Any] = shared.written() if shared is not None else {}
        if own is not None:
            value = merge_patch(value, own.written()) if shared is not None else own.written()
        path: FieldPath = (*self._path, name) if own is not None else ("spec", "object")
        for key in ("apiVersion", "kind"):
            if not value.get(key):
                raise self.cannot_run(path, f"is no Kubernetes object: it has no `{key}`")
        manifest = _read(Manifest(self.test.document, path, value["apiVersion"], value["kind"], value))
        spec, resource = self.spec.namespace, kinds.resource(manifest)
        if spec is None or resource is None or not resource.namespaced or manifest.namespace == spec.name:
            return manifest
        return replace(manifest, value={**value, "metadata": {**manifest.metadata, "namespace": spec.name}})


def _read(manifest: Manifest) -> Manifest:
    if problem := problem_with(manifest):
        raise CannotRunError(problem)
    return manifest


Difference = tuple["FieldPath", str]
"""The path of an expectation below ``expect``, and the difference."""


def differences(
    expected: ExpectSpec, findings: tuple[Finding, ...], before: dict[str, Any], after: dict[str, Any]
) -> Iterator[Difference]:
    """Yield the differences from the expectations of a case, except its golden file."""
    verdict = verdict_of(finding.outcome for finding in findings)
    if verdict is not expected.outcome:
        yield ("outcome",), f"expected {expected.outcome}, got {verdict}"
    elif (
        FAILED not in (expected.ids or ())
        and verdict_of(finding.outcome for finding in findings if finding.id != FAILED) != verdict
    ):
        why = next(finding.reason for finding in findings if finding.id == FAILED)
        yield ("outcome",), f"{verdict} only by {FAILED}: {why}; correct the expression, or name the id in `ids`"
    for name, member, wanted in (("policies", "policy", expected.policies), ("ids", "id", expected.ids)):
        got = {getattr(finding, member) for finding in findings}
        if wanted is not None and set(wanted) != got:
            both = (", ".join(sorted(names)) or "none" for names in (set(wanted), got))
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
    """Return the diff between an object and its golden file, or an empty string if they are equal.

    With ``update``, write the file instead.

    Raise OSError if the file can't be written, DocumentError if it can't be parsed, ValueError if it isn't golden.
    """
    documents = read_documents(read_file(file), str(file)) if file.exists() else None
    written = documents[0].value if documents and len(documents) == 1 else None
    if written == after:
        return ""
    if update:
        kind = after.get("kind")
        if documents and not (isinstance(written, dict) and written.get("kind") == kind):
            raise ValueError(f"{file} contains something other than one {kind}; remove it, or name another file")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _yaml(after).encode())
        return ""
    if documents is None:
        return f"there is no file {file}; --update writes it"
    both = (_yaml(written).splitlines(), _yaml(after).splitlines())
    lines = difflib.unified_diff(*both, str(file), "actual", lineterm="")
    return "\n".join(("the object differs from the file; --update rewrites it", *lines))


def _differing(expected: object, got: object, path: FieldPath) -> Iterator[Difference]:
    """Yield the differences between an object and its expected part."""
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


def silent_policies(manifest: Manifest, judgement: Judgement, index: Index, names: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each policy that has no findings and no changes.

    Empty ``names`` means all policies for this kind of object.
    """
    trace = judgement.trace
    if trace is None:
        return
    left_out = {policy.name: why for policy, why in index.left_out(trace.request)}
    resource = ".".join(filter(None, (trace.request.path, trace.request.resource.group)))
    steps = steps_by_policy(trace)
    of_all = "; ".join(step.text for (policy, _), own in steps.items() if not policy for step in own)
    for policy in index.policies:
        if names and policy.name not in names:
            continue
        if policy.name in left_out:
            if why := left_out[policy.name] or (names and f"it never matches {resource}"):
                yield f"{policy.name} {SKIPS}: {why}"
            continue
        verdict = verdict_on(policy, steps, manifest, judgement, trace)
        if not verdict.findings and not verdict.additions:
            # The last step says why a policy skips or exempts the object.
            last = slice(-1, None) if verdict.word in {SKIPS, EXEMPTS, OVERRIDDEN} else slice(None)
            pairs = ((reason.where, "; ".join(step.text for step in reason.steps[last])) for reason in verdict.reasons)
            reasons = "; ".join(": ".join(filter(None, pair)) for pair in pairs)
            yield f"{policy.name} {verdict.word}: {reasons or of_all}".removesuffix(": ")
