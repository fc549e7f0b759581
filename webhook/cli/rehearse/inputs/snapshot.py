"""The cluster that is rehearsed: its objects, its Nodes and node pools, and what is not known of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.exits import CannotJudgeError
from webhook.cli.rehearse.inputs.custom_resources import (
    controllers_of_pods,
    custom_kinds,
    defined_by,
    established,
    scaled_part,
    uncounted_budgets,
)
from webhook.cli.rehearse.inputs.gangs import pods_without_controller
from webhook.cli.rehearse.inputs.nodes import nodes_of_pools, running_node
from webhook.cli.rehearse.inputs.resources import (
    CUSTOM_RESOURCE_DEFINITION,
    LIMIT_RANGE,
    NAMESPACE,
    NODE,
    POD,
    kind_of_object,
    pod_spec_of,
)
from webhook.cli.rehearse.inputs.shapes import expect_shape
from webhook.cli.rehearse.inputs.storage_classes import storage_classes_for
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.bundle import Bundle
    from webhook.capacity.providers.pool import Pool
    from webhook.cli.rehearse.inputs.resources import JSON, RehearsedKind
    from webhook.manifests.objects import Manifest

CREATED: Final = "2026-01-01T00:00:00Z"
"""When an object was made that does not say so; nothing depends on it."""

JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer by which the Job controller counts Pods."""

_SYSTEM_CLASSES: Final = "system-"
_WITH_REVISIONS: Final = frozenset({"StatefulSet", "DaemonSet"})
_AT_ONCE: Final = frozenset({NAMESPACE, CUSTOM_RESOURCE_DEFINITION})
"""Kinds whose objects are there before any other is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """A cluster at one moment.

    Attributes:
        stored: objects that were in a cluster, or are to be there at once, such as Nodes: written as they are.
        applied: objects of manifests, which the API server is to create, and controllers to make Pods of.
        sources: for each of these where it was written, if it was.
        custom_kinds: the kinds of custom resources among `stored`, by group and kind.
        pools: its node pools, without those of other clusters.
        state: the objects that tell spotgate of the cluster: node pools, Nodes, Namespaces.
        not_simulated: what a rehearsal of it leaves out, a sentence each.
        version: of its API server; None: there is none.
    """

    stored: Sequence[JSON]
    applied: Sequence[JSON] = ()
    sources: Sequence[Manifest | None] = ()
    custom_kinds: Mapping[tuple[str, str], RehearsedKind] = field(default_factory=dict)
    pools: Sequence[Pool] = ()
    state: Sequence[JSON] = ()
    not_simulated: Sequence[str] = ()
    version: str | None = None

    @property
    def nodes(self) -> list[JSON]:
        """Return its Nodes."""
        return [each for each in self.stored if each["kind"] == NODE.kind]


@dataclass(frozen=True, slots=True)
class SortedObjects:
    """Hold the objects of a cluster by what becomes of them: `stored`, `applied` and `sources` as in a snapshot.

    Attributes:
        custom: custom resources that have been in a cluster.
        notes: what is left out.
    """

    stored: list[JSON] = field(default_factory=list)
    applied: list[JSON] = field(default_factory=list)
    sources: list[Manifest | None] = field(default_factory=list)
    custom: list[JSON] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def apply(self, value: JSON, source: Manifest | None) -> None:
        """Add an object that the API server is to create."""
        self.applied.append(value)
        self.sources.append(source)


def snapshot_of(
    manifests: Sequence[Manifest],
    pools: Sequence[Pool],
    bundle: Bundle,
    allocatable: Mapping[str, Mapping[str, str]],
) -> ClusterSnapshot:
    """Return the cluster that these objects describe.

    Args:
        manifests: its objects.
        pools: its node pools.
        bundle: says how pools are labelled, and which kinds have pod templates.
        allocatable: what a node of an instance type, or of a pool, offers, where neither Nodes nor providers tell.

    Raises:
        CannotJudgeError: they describe no cluster.
    """
    _expect_no_duplicates(manifests)
    here = [each for each in pools if not each.elsewhere]
    objects = sort_objects(manifests, bundle)
    for each in storage_classes_for([*objects.stored, *objects.applied]):
        objects.apply(each, None)
    objects.stored.extend(nodes_of_pools(here, objects.stored, bundle.providers, allocatable))
    objects.notes.extend(_without_requests(objects.applied))
    return complete(objects, here, [each.value for each in manifests])


def sort_objects(manifests: Sequence[Manifest], bundle: Bundle) -> SortedObjects:
    """Return these objects by what becomes of them. Raises CannotJudgeError."""
    objects = SortedObjects()
    for manifest in manifests:
        if (kind := kind_of_object(manifest.value)) is not None:
            _add(objects, manifest, kind)
    owners = {
        (owner.get("kind"), each["metadata"].get("namespace", ""), owner.get("name"))
        for each in (*objects.stored, *objects.applied)
        for owner in each["metadata"].get("ownerReferences") or ()
    }
    for manifest in manifests:
        if kind_of_object(manifest.value) is not None:
            continue
        if manifest.metadata.get("uid"):
            objects.custom.append(manifest.value)
        if (manifest.kind, manifest.namespace or "default", manifest.name) in owners:
            continue  # what its controller has made is here
        try:
            made, note = pods_without_controller({**manifest.value, "metadata": manifest.metadata}, bundle)
        except (AttributeError, KeyError, TypeError) as error:
            raise CannotJudgeError(
                f"{manifest.file}:{manifest.line}: {manifest.kind} {manifest.name} can't be read as one: {error!r}"
            ) from None
        for each in made:
            objects.apply(each, manifest)
        objects.notes.extend([note] if note else [])
    return objects


def _add(objects: SortedObjects, manifest: Manifest, kind: RehearsedKind) -> None:
    """Add an object of a kind that is loaded. Raises CannotJudgeError."""
    expect_shape(manifest)
    value = {**manifest.value, "metadata": dict(manifest.metadata)}
    if kind.namespaced:
        value["metadata"].setdefault("namespace", "default")
    if kind is NODE:
        objects.stored.append(running_node(value, _expected_allocatable(manifest)))
    elif not _was_there(kind, value):
        objects.apply(value, manifest)
    elif kind.namespaced or not manifest.name.startswith(_SYSTEM_CLASSES):
        objects.stored.append(as_stored(value))


def _was_there(kind: RehearsedKind, value: JSON) -> bool:
    """Return whether an object is as a cluster had it, or to be there before all that is created."""
    runs = kind is POD and bool((value.get("spec") or {}).get("nodeName"))
    return runs or kind in _AT_ONCE or bool(value["metadata"].get("uid"))


def complete(objects: SortedObjects, pools: Sequence[Pool], state: Sequence[JSON]) -> ClusterSnapshot:
    """Return the snapshot of these objects, with the Namespaces that they need. Raises CannotJudgeError."""
    stored = objects.stored
    nodes = {each["metadata"]["name"] for each in stored if each["kind"] == NODE.kind}
    if not nodes:
        raise CannotJudgeError(
            "spotgate rehearse: there are no nodes: pass Nodes or node pools with --state, or --kubeconfig"
        )
    for pod in stored:
        if pod["kind"] == POD.kind and (node := pod["spec"].get("nodeName")) and node not in nodes:
            metadata = pod["metadata"]
            raise CannotJudgeError(
                f"spotgate rehearse: Pod {metadata['namespace']}/{metadata['name']} is on Node {node}, which is not "
                "in the snapshot: take Nodes and Pods at one time, or leave out the Pod"
            )
    kinds = custom_kinds(stored, controllers_of_pods(stored))
    if any(pod_spec_of(each).get("schedulingGroup") for each in (*stored, *objects.applied)):
        objects.notes.append("spec.schedulingGroup: the scheduler here places the Pods of a PodGroup one by one")
    objects.notes.extend(changed_by_others(stored))
    notes = [*objects.notes, *uncounted_budgets([*stored, *objects.applied], kinds)]
    ordered = [*namespaces_for(stored, objects.applied), *_with_custom(stored, objects.custom, kinds)]
    return ClusterSnapshot(
        stored=sorted(ordered, key=lambda each: each["kind"] != NAMESPACE.kind),
        applied=objects.applied,
        sources=objects.sources,
        custom_kinds=kinds,
        pools=pools,
        state=[*state, *(each for each in stored if each["kind"] == NODE.kind)],
        not_simulated=notes,
    )


def namespaces_for(stored: Iterable[JSON], applied: Iterable[JSON]) -> Iterator[JSON]:
    """Yield the Namespaces that objects are in and that are not among them."""
    there = {each["metadata"]["name"] for each in stored if each["kind"] == NAMESPACE.kind}
    needed = {
        each["metadata"]["namespace"]
        for each in (*stored, *applied)
        if (kind := kind_of_object(each)) is not None and kind.namespaced
    }
    for name in sorted(needed - there):
        yield as_stored({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _with_custom(
    stored: Iterable[JSON], custom: Iterable[JSON], kinds: Mapping[tuple[str, str], RehearsedKind]
) -> Iterator[JSON]:
    """Yield the objects with those custom resources, and their definitions, that control Pods; without all others."""
    definitions = {}
    for each in stored:
        if each["kind"] != CUSTOM_RESOURCE_DEFINITION.kind:
            yield each
        elif (kind := defined_by(each)) in kinds:
            definitions[kind] = each
            yield established(each)
    for each in custom:
        if (definition := definitions.get((each["apiVersion"].rpartition("/")[0], each["kind"]))) is not None:
            yield scaled_part(each, definition)


def as_stored(value: JSON) -> JSON:
    """Return an object as etcd is to have it: with a UID, and without what the API server adds when it is read."""
    metadata = {
        "uid": str(uuid.uuid4()),
        "creationTimestamp": CREATED,
        **{key: each for key, each in value["metadata"].items() if key not in {"managedFields", "resourceVersion"}},
    }
    stored = {**value, "metadata": metadata}
    if value["kind"] == NAMESPACE.kind:
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
        stored = {**stored, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    elif value["kind"] == POD.kind:
        # Those who would take other finalizers away are not here, and the Pod would never be gone.
        metadata["finalizers"] = [each for each in metadata.get("finalizers") or () if each == JOB_TRACKING]
        if not value.get("status") and value["spec"].get("nodeName"):
            stored["status"] = running_status()
    elif value["kind"] in _WITH_REVISIONS:
        # Its revisions are not here, and what containers are told may be left out: it would roll its Pods.
        stored["spec"] = {**value["spec"], "updateStrategy": {"type": "OnDelete"}}
    return stored


def rolled_out(before: JSON, after: JSON) -> JSON:
    """Return a changed object; its controller is to roll out another template, also one that else only keeps Pods."""
    template = (before.get("spec") or {}).get("template")
    if before["kind"] in _WITH_REVISIONS and (after.get("spec") or {}).get("template") != template:
        return {**after, "spec": {**after["spec"], "updateStrategy": {"type": "RollingUpdate"}}}
    return after


def running_status() -> JSON:
    """Return the status of a Pod that runs and is ready."""
    ready = [
        {"type": each, "status": "True", "lastTransitionTime": CREATED}
        for each in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {"phase": "Running", "startTime": CREATED, "conditions": ready}


def _expect_no_duplicates(manifests: Iterable[Manifest]) -> None:
    """Raise CannotJudgeError if an object is there twice: the API server has one, and it matters which."""
    first: dict[tuple[str, ...], Manifest] = {}
    for each in manifests:
        if not each.name:
            continue
        there = first.setdefault((each.group, each.kind, each.namespace or "default", each.name), each)
        if there is not each and there.value != each.value:
            raise CannotJudgeError(
                f"{each.file}:{each.line}: {each.kind} {each.name} is there twice, also at {there.file}:{there.line}: "
                "leave out one of them, or rename it"
            )


def changed_by_others(stored: Iterable[JSON]) -> Iterator[str]:
    """Yield a sentence for each workload whose Pods have other containers or requests than its template."""
    owners = {each["metadata"].get("uid"): each for each in stored if each["kind"] != POD.kind}
    said: set[str] = set()
    for pod in stored:
        references: Iterable[JSON] = pod["metadata"].get("ownerReferences") or ()
        owner = next((owners[each["uid"]] for each in references if each.get("uid") in owners), None)
        if pod["kind"] != POD.kind or owner is None or owner["metadata"]["uid"] in said:
            continue
        now, then = _requests_by_container(pod), _requests_by_container(owner)
        # What a template does not say comes from its limits, or from a LimitRange.
        if not now.keys() <= then.keys() or any(not then[name].items() <= now[name].items() for name in now):
            said.add(owner["metadata"]["uid"])
            yield (
                f"{owner['kind']} {owner['metadata']['name']}: its Pods have other containers or requests than its "
                "template says; what changed them (a webhook, an autoscaler) is not here, and new Pods are as it says"
            )


def _requests_by_container(value: JSON) -> dict[str, JSON]:
    spec = pod_spec_of(value)
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    return {each["name"]: (each.get("resources") or {}).get("requests") or {} for each in containers}


def _without_requests(applied: Sequence[JSON]) -> Iterator[str]:
    """Yield a sentence for each workload whose containers request nothing, where no LimitRange may say it for them."""
    limited = {each["metadata"]["namespace"] for each in applied if each["kind"] == LIMIT_RANGE.kind}
    for each in applied:
        if each["metadata"].get("namespace") in limited:
            continue
        containers = pod_spec_of(each).get("containers") or ()
        if containers and not any(any((one.get("resources") or {}).values()) for one in containers):
            name = f"{each['kind']} {each['metadata'].get('name', '')}"
            yield f"{name} requests no resources: to the scheduler its Pods need no room, and fit anywhere"


def _expected_allocatable(manifest: Manifest) -> Mapping[str, Any]:
    """Return what a Node offers. Raises CannotJudgeError if it does not say so, or nothing that can be read."""
    status = manifest.value.get("status") or {}
    offered = status.get("allocatable") or status.get("capacity")
    if not offered:
        raise CannotJudgeError(
            f"{manifest.file}:{manifest.line}: Node {manifest.name} has no status.allocatable, so nothing can be "
            "scheduled there: write what it offers, as `kubectl get node -o yaml` does"
        )
    for resource, amount in offered.items():
        if amount_of(amount) is None:
            raise CannotJudgeError(
                f"{manifest.file}:{manifest.line}: Node {manifest.name}: {amount!r} is no quantity (at "
                f"status.allocatable[{resource!r}]); write one as 8, 500m or 32Gi"
            )
    return dict(offered)
