"""Objects of files, judged as the API server would have them judged: defaulted, mutated, then validated."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.context import Context, Phase
from webhook.decision import Finding, Outcome
from webhook.documents import parse_pointer
from webhook.engine import ENGINE, decide
from webhook.kube.defaults import default_pod, default_tolerations, default_workload, drop_nulls
from webhook.kube.resources import Resource, plural_of, resource_of
from webhook.patch import pointer
from webhook.review import GroupVersionKind, GroupVersionResource, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.cli.kinds import Kinds
    from webhook.cluster.manifests import Manifest
    from webhook.documents import Path as FieldPath
    from webhook.index import Index
    from webhook.patch import Operation
    from webhook.policy.errors import Problem
    from webhook.review import UserInfo

DEFAULT_NAMESPACE: Final = "default"
"""Where an object goes that names no namespace."""

_NULL: Final = msgspec.Raw(b"null")
_STEP: Final = re.compile(r'\.?([$A-Za-z_][\w$-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')

Identity = tuple[str, str, str, str]
"""(API group, kind, namespace, name)"""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one object.

    Attributes:
        namespace: where it would be created; empty for cluster-scoped objects.
        findings: about it.
        patch: JSONPatch for its document, as that is written.
        problem: why it could not be judged.
    """

    namespace: str = ""
    findings: tuple[Finding, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()
    problem: Problem | None = None


class Judge:
    """Judges objects one by one.

    Args:
        index: the policies.
        kinds: which resources the kinds are.
        context: the surroundings of all decisions; its phase does not matter.
        operation: CREATE, UPDATE or DELETE.
        user: who asks.
        before: for UPDATE, the objects that are there already. One that is not there is judged as if it were new.
    """

    def __init__(
        self,
        index: Index,
        kinds: Kinds,
        context: Context,
        *,
        operation: str,
        user: UserInfo,
        before: Iterable[Manifest] = (),
    ) -> None:
        self._index = index
        self._kinds = kinds
        self._mutate = msgspec.structs.replace(context, phase=Phase.MUTATE, offline=True, patch_templates=True)
        self._validate = msgspec.structs.replace(context, phase=Phase.VALIDATE, offline=True)
        self._operation = operation
        self._user = user
        self._before = {_identity(each, self._namespace(each)): each for each in before}

    def judge(self, manifest: Manifest) -> Judgement:
        """Judge one object."""
        resource = self._kinds.resource(manifest)
        if resource is None:
            return self._judge_unknown(manifest)
        value = _defaulted(manifest, self._namespace(manifest))
        request = self._request(manifest, resource, value)
        mutation = decide(request, self._index, self._mutate)
        if mutation.patch:
            _apply(value, mutation.patch)
            request.object = _raw(value)
        decision = mutation if mutation.malformed else decide(request, self._index, self._validate)
        if decision.malformed:
            return Judgement(problem=_malformed(manifest, decision.findings[0]))
        return Judgement(
            namespace=request.namespace,
            findings=decision.findings,
            patch=_as_written(mutation.patch, manifest),
        )

    def _judge_unknown(self, manifest: Manifest) -> Judgement:
        """An object of a kind of which nobody says what resource it is: no policy can look at it."""
        if meant := self._kinds.meant(manifest):
            text = f"{manifest.api_version} has no kind {manifest.kind}; did you mean apiVersion: {meant}?"
            return Judgement(problem=manifest.problem(("apiVersion",), text))
        guess = Resource(manifest.group, manifest.kind, plural_of(manifest.kind), namespaced=True)
        if self._index.route(Phase.VALIDATE, self._request(manifest, guess, {})) is None:
            return Judgement(namespace=manifest.namespace)
        finding = Finding(
            policy=ENGINE,
            outcome=Outcome.INDETERMINATE,
            reason=f"not judged: nothing says which resource kind {manifest.kind} of {manifest.api_version} is",
            field="kind",
            fix=f"pass its CustomResourceDefinition with --state, for policies that match {guess.plural}",
        )
        return Judgement(namespace=manifest.namespace, findings=(finding,))

    def _namespace(self, manifest: Manifest) -> str:
        resource = self._kinds.resource(manifest)
        if resource is None:
            return manifest.namespace
        return (manifest.namespace or DEFAULT_NAMESPACE) if resource.namespaced else ""

    def _request(self, manifest: Manifest, resource: Resource, value: dict[str, Any]) -> Request:
        namespace = self._namespace(manifest)
        before = _raw(value) if self._operation == "DELETE" else _NULL
        if self._operation == "UPDATE" and (there := self._before.get(_identity(manifest, namespace))):
            before = _raw(_defaulted(there, namespace))
        return Request(
            uid=f"{manifest.file}:{manifest.document.line}{pointer(manifest.path)}",
            operation=self._operation,
            kind=GroupVersionKind(resource.group, manifest.version, resource.kind),
            resource=GroupVersionResource(resource.group, manifest.version, resource.plural),
            name=manifest.name,
            namespace=namespace,
            user_info=self._user,
            object=_NULL if self._operation == "DELETE" else _raw(value),
            old_object=before,
        )


def path_of(field: str) -> FieldPath:
    """The path that a finding's field text writes, as far as it is one: ``metadata.labels["a/b"]``."""
    path: list[str | int] = []
    end = 0
    while step := _STEP.match(field, end):
        name, index, key = step.groups()
        path.append(int(index) if index else name or _unescaped(key))
        end = step.end()
    return tuple(path)


def _unescaped(key: str) -> str:
    try:
        return str(json.loads(f'"{key}"', strict=False))
    except ValueError:  # written as it is
        return key


def _identity(manifest: Manifest, namespace: str) -> Identity:
    return (manifest.group, manifest.kind, namespace, manifest.name)


def _raw(value: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _copy(value: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copy


def _defaulted(manifest: Manifest, namespace: str) -> dict[str, Any]:
    """The object as the API server hands it to a webhook."""
    value = _copy(manifest.value)
    metadata = value["metadata"] = value.get("metadata") or {}
    # Nulls in a custom resource stay, unless its CRD says something else.
    drop_nulls(value if resource_of(manifest.group, manifest.kind) is not None else metadata)
    if namespace:
        metadata["namespace"] = namespace
    if (manifest.group, manifest.kind) == ("", "Pod"):
        default_pod(value)
        default_tolerations(value)
    default_workload(manifest.group, manifest.kind, value)
    return value


def _apply(value: dict[str, Any], operations: Iterable[Operation]) -> list[Operation]:
    """Change the object in place; the operations that did it, where their parents were missing with those."""
    import jsonpatch  # noqa: PLC0415 - most objects need no patch

    applied = []
    for operation in operations:
        fitting = _with_parents(operation, value)
        jsonpatch.apply_patch(value, [fitting.as_json()], in_place=True)
        applied.append(fitting)
    return applied


def _as_written(operations: tuple[Operation, ...], manifest: Manifest) -> tuple[dict[str, Any], ...]:
    """The operations for the document of the file, which has neither the defaults nor the parents they made."""
    if not operations:
        return ()
    fitting = _apply(_copy(manifest.value), operations)
    return tuple({**each.as_json(), "path": pointer(manifest.path) + each.path} for each in fitting)


def _with_parents(operation: Operation, value: Any) -> Operation:  # noqa: ANN401 - JSON
    """The same addition, with those parents in its value that are not there, or null."""
    path = parse_pointer(operation.path)
    for depth, step in enumerate(path[:-1]):
        value = value[int(step)] if isinstance(value, list) else value.get(str(step))
        if value is None:
            added = operation.value
            for inner in reversed(path[depth + 1 :]):
                added = [added] if inner == "-" else {str(inner): added}
            return msgspec.structs.replace(operation, path=pointer(path[: depth + 1]), value=added)
    return operation


def _malformed(manifest: Manifest, finding: Finding) -> Problem:
    path = path_of(finding.field)
    return msgspec.structs.replace(manifest.problem(path, f"{finding.reason}; {finding.fix}"), field=finding.field)
