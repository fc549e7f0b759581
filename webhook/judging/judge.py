"""Evaluate manifests as the API server does: apply defaults, mutate, then validate."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.field_paths import parse_pointer
from webhook.base.text import frames_of
from webhook.capacity.providers.provider import readers_by_resource, sizers_by_resource
from webhook.engine.engine import decide_both
from webhook.inputs.objects import DEFAULT_NAMESPACE, Manifest, identity_of
from webhook.inputs.state import ListedPool
from webhook.judging.kinds import ResourceKinds, UnknownTemplates
from webhook.kube.defaults import TEXTS, complete_pod, default_object, drop_nulls
from webhook.kube.references import Reference, with_runtime_class
from webhook.kube.resources import Resource, plural_of, resource_of
from webhook.model.decision import Decision, Finding, Outcome, PhaseDecisions, engine_finding
from webhook.model.patch import Operation, apply_all, pointer
from webhook.model.review import GroupVersionKind, GroupVersionResource, MalformedObjectError, Request, UserInfo
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.engine.index import Index
    from webhook.policy.errors import Problem

_NULL: Final = msgspec.Raw(b"null")
_GENERATED_FROM_AT_MOST: Final = 58
"""The maximum length of a generateName before the five characters that the API server adds."""

_NAMELESS: Final = engine_finding(
    id="object/nameless",
    outcome=Outcome.WARN,
    reason="the object has no name",
    field="metadata.name",
    detail="The API server rejects an object without a name.",
    fix="set `metadata.name` or `metadata.generateName`",
)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of evaluating one object.

    Attributes:
        namespace: the object's namespace; empty for cluster-scoped objects.
        patch: the JSONPatch for the document as written.
        problem: why the object can't be evaluated, or not by all policies; then `fix` doesn't write the patch.
        trace: the trace, if the context requests one and the object can be evaluated.
    """

    namespace: str = ""
    findings: tuple[Finding, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()
    problem: Problem | None = None
    trace: PhaseDecisions | None = None


class Judge:
    """An evaluator of objects, one at a time. For DELETE, their order matters.

    ``before`` lists the objects that exist in the cluster. Other objects are new to an UPDATE, and existing to a
    DELETE.
    """

    def __init__(
        self,
        index: Index,
        kinds: ResourceKinds,
        context: Context,
        *,
        operation: str,
        user: UserInfo,
        before: Iterable[Manifest] = (),
    ) -> None:
        self._index = index
        self._kinds = kinds
        self._mutate = replace(context, phase=Phase.MUTATE, offline=True, patch_templates=True)
        self._validate = replace(context, phase=Phase.VALIDATE, offline=True)
        self._operation = operation
        self._user = user
        self._unknown_templates = UnknownTemplates(index, context.view)
        self._before = {
            identity_of(manifest, _namespace_of(manifest, kinds.resource(manifest))): manifest
            for manifest in (before if operation != "CREATE" else ())
        }

    def judge(self, manifest: Manifest, *, is_stored: bool = False) -> Judgement:
        """Evaluate one object. ``is_stored``: the cluster has it unchanged."""
        resource = self._kinds.resource(manifest)
        try:
            judged = self._judge_unknown(manifest) if resource is None else self._judge(manifest, resource, is_stored)
        except Exception as error:  # noqa: BLE001 - the other objects are evaluated
            place = f"{type(error).__name__} at {frames_of(error)[-1]}"
            return Judgement(
                problem=manifest.problem((), f"can't be evaluated because of a bug in spotgate; report it: {place}")
            )
        if judged.problem is None:
            nameless = _NAMELESS if resource is not None and not manifest.shown_name else None
            note = self._unknown_templates.finding(manifest, resource) if self._operation != "DELETE" else None
            if nameless or note:
                judged = replace(judged, findings=(*judged.findings, *filter(None, (nameless, note))))
        if not isinstance(manifest, ListedPool):
            return judged
        findings = (replace(finding, field=manifest.written_field(finding.field)) for finding in judged.findings)
        return replace(judged, findings=tuple(findings))

    def _judge(self, manifest: Manifest, resource: Resource, is_stored: bool) -> Judgement:  # noqa: FBT001 - private
        namespace = _namespace_of(manifest, resource)
        routes = (self._index.route_of(phase, self._operation, resource.group, resource.plural) for phase in Phase)
        if self._operation != "DELETE" and not self._mutate.trace and not any(routes):  # no policy evaluates most kinds
            return Judgement(namespace=namespace)
        value = defaulted(manifest, namespace, self._mutate.view.references)
        stored = manifest if is_stored else self._before.get(identity_of(manifest, namespace))
        before = None if stored is None else defaulted(stored, namespace)
        if before is not None and resource_of(manifest.group, manifest.kind) is not None:  # its fields are known
            value = _unchanged(value, before)
        request = self._request(manifest, resource, value, before)
        written = request.object

        def complete(mutation: Decision) -> None:
            if mutation.patch:
                _apply(value, mutation.patch)
                request.object = _raw(value)
            if generated := self._generated_name(manifest):
                request.name = value["metadata"]["name"] = generated
                default_object(manifest.group, manifest.kind, value)  # a Namespace has a label with its name
                request.object = _raw(value)

        mutation, decision = decide_both(request, self._index, self._mutate, self._validate, complete)
        if decision.malformed:
            finding = decision.findings[0]
            error = MalformedObjectError(finding.reason, finding.field, finding.fix)
            return Judgement(problem=manifest.malformed(error))
        if self._operation == "DELETE" and not decision.of(Outcome.DENY):
            self._forget(manifest, resource, namespace)
        failure = next(iter((*mutation.failures, *decision.failures)), None)
        return Judgement(
            namespace=namespace,
            findings=tuple(dict.fromkeys((*mutation.findings, *decision.findings))),
            patch=as_written(mutation.patch, manifest),
            problem=manifest.problem((), f"{failure}; `fix` leaves the object as it is") if failure else None,
            trace=PhaseDecisions(request=request, before=written, mutation=mutation, validation=decision)
            if self._mutate.trace
            else None,
        )

    def _judge_unknown(self, manifest: Manifest) -> Judgement:
        """Evaluate an object whose resource is unknown, so no policy can match it."""
        if (replaced := self._kinds.replaced(manifest)) is not None:
            return Judgement(namespace=manifest.namespace, findings=(replaced,))
        if meant := self._kinds.meant(manifest):
            text = f"{manifest.api_version} has no kind {manifest.kind}; did you mean apiVersion: {' or '.join(meant)}?"
            problem = manifest.problem(("apiVersion",), text)
            # Also report its other mistakes: a copied example usually has several.
            judged = self.judge(replace(manifest, api_version=meant[0])) if len(meant) == 1 else Judgement()
            return replace(judged, problem=problem, patch=(), trace=None)
        if self._kinds.pools(manifest.kind):  # `unread_pools` reports the first one
            return Judgement(namespace=manifest.namespace)
        guess = Resource(manifest.group, manifest.kind, plural_of(manifest.kind), namespaced=True)
        if self._index.route_of(Phase.VALIDATE, self._operation, guess.group, guess.plural) is None:
            return Judgement(namespace=manifest.namespace)
        finding = engine_finding(
            id="object/unknown-kind",
            outcome=Outcome.INDETERMINATE,
            reason=f"not evaluated: the resource of kind {manifest.kind} of {manifest.api_version} is unknown",
            field="kind",
            fix=f"if a policy matches {guess.plural}, pass their CustomResourceDefinition with --state",
        )
        return Judgement(namespace=manifest.namespace, findings=(finding,))

    def _generated_name(self, manifest: Manifest) -> str:
        """Return a name as the API server generates it between the two webhooks, or an empty string.

        Return an empty string for a node pool: the cluster's state identifies it by its generateName.
        """
        if manifest.name or self._operation != "CREATE" or self._kinds.pools(manifest.kind):
            return ""
        begin = manifest.shown_name[:_GENERATED_FROM_AT_MOST]
        return f"{begin}xxxxx" if begin else ""

    def _forget(self, manifest: Manifest, resource: Resource, namespace: str) -> None:
        """Remove a deleted node pool, or the pool whose size the object sets, from the cluster of later evaluations."""
        view, key = self._validate.view, (resource.group, resource.plural)
        reader = readers_by_resource(self._index.providers.values()).get(key)
        gone = reader.known(view.pools, namespace, manifest.name) if reader is not None else None
        by = (manifest.kind, namespace, manifest.name)
        if view.pools is not None and (gone is not None or key in sizers_by_resource(self._index.providers.values())):
            kept = (pool for pool in view.pools if pool is not gone and (pool.size is None or pool.size.by != by))
            self._validate = replace(self._validate, view=replace(view, pools=tuple(kept)))

    def _request(
        self, manifest: Manifest, resource: Resource, value: dict[str, Any], before: dict[str, Any] | None
    ) -> Request:
        # For the API server, the namespace of a Namespace is its name.
        is_namespace = (resource.group, resource.plural) == ("", "namespaces")
        namespace = manifest.name if is_namespace else _namespace_of(manifest, resource)
        deleted = self._operation == "DELETE"
        old = value if deleted and before is None else before
        return Request(
            uid="",
            operation=self._operation,
            kind=GroupVersionKind(resource.group, manifest.version, resource.kind),
            resource=GroupVersionResource(resource.group, manifest.version, resource.plural),
            name=manifest.name,
            namespace=namespace,
            user_info=self._user,
            object=_NULL if deleted else _raw(value),
            old_object=_NULL if old is None else _raw(old),
        )


def _namespace_of(manifest: Manifest, resource: Resource | None) -> str:
    if resource is None:
        return manifest.namespace
    return (manifest.namespace or DEFAULT_NAMESPACE) if resource.namespaced else ""


def _raw(value: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def defaulted(
    manifest: Manifest, namespace: str, references: Mapping[str, Reference] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the object as the API server sends it to a webhook, with the RuntimeClass of a Pod if it is known."""
    encoded = msgspec.json.encode(manifest.value)
    value: dict[str, Any] = msgspec.json.decode(encoded)
    metadata = value["metadata"] = value.get("metadata") or {}
    if b"null" in encoded:  # rare, and faster than searching the value
        # Nulls in a custom resource stay, unless its CRD specifies otherwise.
        drop_nulls(metadata if resource_of(manifest.group, manifest.kind) is None else value)
    if namespace:
        metadata["namespace"] = namespace
    if (manifest.group, manifest.kind) == ("", "Pod"):
        complete_pod(value)
        value = with_runtime_class(value, references)
    default_object(manifest.group, manifest.kind, value)
    return value


def _unchanged(value: Any, before: Any) -> Any:
    """Replace the parts of the value that differ from ``before`` only in fields that the API server doesn't store."""
    if _without_empty(value) == _without_empty(before):
        return before
    if not isinstance(value, dict) or not isinstance(before, dict):
        return value
    same = before.keys() - TEXTS
    return {key: _unchanged(member, before[key]) if key in same else member for key, member in value.items()}


def _without_empty(value: Any) -> Any:
    """Return the value without zero or empty fields, except in maps of texts."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = ((key, member if key in TEXTS else _without_empty(member)) for key, member in value.items())
    return {key: member for key, member in members if member}


def _apply(value: dict[str, Any], operations: Iterable[Operation]) -> list[Operation]:
    """Change the object in place. Return the operations, extended by missing parents."""
    applied = []
    for operation in operations:
        fitting = _with_parents(operation, value)
        apply_all([fitting], value)
        applied.append(fitting)
    return applied


def as_written(operations: tuple[Operation, ...], manifest: Manifest) -> tuple[dict[str, Any], ...]:
    """Return the operations for the document as written, which lacks defaults and their parents."""
    if not operations:
        return ()
    fitting = _apply(msgspec.json.decode(_raw(manifest.value)), operations)
    return tuple({**operation.as_json(), "path": pointer(manifest.path) + operation.path} for operation in fitting)


def _with_parents(operation: Operation, value: Any) -> Operation:
    """Return the operation with its missing or null parents in its value."""
    path = parse_pointer(operation.path)
    for depth, step in enumerate(path[:-1]):
        value = value[int(step)] if isinstance(value, list) else value.get(str(step))
        if value is None:
            added = operation.value
            for inner in reversed(path[depth + 1 :]):
                added = [added] if inner == "-" else {str(inner): added}
            return replace(operation, path=pointer(path[: depth + 1]), value=added)
    return operation
