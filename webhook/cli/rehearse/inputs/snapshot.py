"""The cluster that is rehearsed: its objects, its Nodes and node pools, and what is not known of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.exits import CannotJudgeError
from webhook.cli.rehearse.inputs.gangs import pods_without_controller
from webhook.cli.rehearse.inputs.nodes import nodes_of_pools, running_node
from webhook.cli.rehearse.inputs.resources import NAMESPACE, NODE, POD, identity_of, kind_of_object
from webhook.cli.rehearse.inputs.storage_classes import storage_classes_for
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.bundle import Bundle
    from webhook.capacity.providers.pool import Pool
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.manifests.objects import Manifest

CREATED: Final = "2026-01-01T00:00:00Z"
"""When an object was made that does not say so; nothing depends on it."""

_SYSTEM_CLASSES: Final = "system-"
_WITH_REVISIONS: Final = frozenset({"StatefulSet", "DaemonSet"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """A cluster at one moment.

    Attributes:
        stored: objects that were in a cluster, or are to be there at once, such as Nodes: written as they are.
        applied: objects of manifests, which the API server is to create, and controllers to make Pods of.
        sources: for each of these where it was written, if it was.
        pools: its node pools, without those of other clusters.
        state: the objects that tell spotgate of the cluster: node pools, Nodes, Namespaces.
        not_simulated: what a rehearsal of it leaves out, a sentence each.
    """

    stored: Sequence[JSON]
    applied: Sequence[JSON] = ()
    sources: Sequence[Manifest | None] = ()
    pools: Sequence[Pool] = ()
    state: Sequence[JSON] = ()
    not_simulated: Sequence[str] = ()

    @property
    def nodes(self) -> list[JSON]:
        """Return its Nodes."""
        return [each for each in self.stored if each["kind"] == NODE.kind]

    def with_changes(self, objects: Iterable[JSON]) -> ClusterSnapshot:
        """Return the snapshot with these objects instead of those of the same kind, namespace and name."""
        changed = {identity_of(each): each for each in objects}
        kept = [each for each in self.applied if identity_of(each) not in changed]
        sources = [
            source for each, source in zip(self.applied, self.sources, strict=True) if identity_of(each) not in changed
        ]
        stored = [each for each in self.stored if identity_of(each) not in changed]
        return replace(
            self, stored=stored, applied=[*kept, *changed.values()], sources=[*sources, *[None] * len(changed)]
        )


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
    stored: list[JSON] = []
    applied: list[JSON] = []
    sources: list[Manifest | None] = []
    notes: list[str] = []
    for manifest in manifests:
        value = {**manifest.value, "metadata": dict(manifest.metadata)}
        kind = kind_of_object(value)
        if kind is None:
            made, note = pods_without_controller(value, bundle)
            applied += made
            sources += [manifest] * len(made)
            notes += [note] if note else []
            continue
        metadata = value["metadata"]
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        if kind is NODE:
            stored.append(running_node(value, _expected_allocatable(manifest)))
        elif metadata.get("uid") or kind is NAMESPACE or (kind is POD and (value.get("spec") or {}).get("nodeName")):
            if not metadata.get("name", "").startswith(_SYSTEM_CLASSES) or kind.namespaced:
                stored.append(as_stored(value))
        else:
            applied.append(value)
            sources.append(manifest)
    classes = list(storage_classes_for([*stored, *applied]))
    applied += classes
    sources += [None] * len(classes)
    stored += list(nodes_of_pools(here, stored, bundle.providers, allocatable))
    notes += _without_requests(applied)
    return complete(stored, applied, sources, here, [each.value for each in manifests], notes)


def complete(
    stored: list[JSON],
    applied: list[JSON],
    sources: list[Manifest | None],
    pools: Sequence[Pool],
    state: Sequence[JSON],
    notes: Sequence[str],
) -> ClusterSnapshot:
    """Return the snapshot of these parts, with the Namespaces that they need. Raises CannotJudgeError."""
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
    there = {each["metadata"]["name"] for each in stored if each["kind"] == NAMESPACE.kind}
    needed = {
        each["metadata"]["namespace"]
        for each in (*stored, *applied)
        if (kind := kind_of_object(each)) is not None and kind.namespaced
    }
    stored += [
        as_stored({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in sorted(needed - there)
    ]
    return ClusterSnapshot(
        stored=[each for each in stored if each["kind"] == NAMESPACE.kind]
        + [each for each in stored if each["kind"] != NAMESPACE.kind],
        applied=applied,
        sources=sources,
        pools=pools,
        state=[*state, *(each for each in stored if each["kind"] == NODE.kind)],
        not_simulated=notes,
    )


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
    elif value["kind"] == POD.kind and not value.get("status") and value["spec"].get("nodeName"):
        stored["status"] = running_status()
    elif value["kind"] in _WITH_REVISIONS:
        # Its revisions are not here, and what containers are told may be left out: it would roll its Pods.
        stored["spec"] = {**value["spec"], "updateStrategy": {"type": "OnDelete"}}
    return stored


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


def _without_requests(applied: Iterable[JSON]) -> Iterator[str]:
    """Yield a sentence for each workload with a container that requests nothing."""
    for each in applied:
        spec = each.get("spec") or {}
        pod = spec if each["kind"] == POD.kind else (spec.get("template") or {}).get("spec") or {}
        containers = pod.get("containers") or ()
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
