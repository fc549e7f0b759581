"""Build the snapshot of the rehearsed cluster: its objects, Nodes, and node pools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.inputs.state import view_of
from webhook.kube.containers import quantities_of
from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from
from webhook.kube.pod import ObjectMeta, Pod
from webhook.kube.quantity import amount_of
from webhook.model.patch import merge_patch
from webhook.model.review import MalformedObjectError
from webhook.rehearse.inputs.gangs import pods_without_controller
from webhook.rehearse.inputs.nodes import CREATED, nodes_of_pools, read_node, running_node, stored_metadata
from webhook.rehearse.inputs.resources import (
    BY_NAME,
    CLAIM,
    DAEMON_SET,
    LIMIT_RANGE,
    NAMESPACE,
    NODE,
    POD,
    QUOTA,
    STATEFUL_SET,
    STORAGE_CLASS,
    controller_of,
    group_kind_of,
    kind_of_object,
    manifest_of,
    template_of,
    workload_identity,
)
from webhook.rehearse.inputs.source import ClusterSource, WorkloadIdentity, without_repeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.engine.bundle import Bundle
    from webhook.inputs.objects import Manifest
    from webhook.rehearse.inputs.nodes import Offers, RehearsedNode
    from webhook.rehearse.inputs.resources import JSON, RehearsedKind

PROVISIONER: Final = "rehearse.spotgate.dev"
"""The provisioner of the StorageClasses that a rehearsal creates."""

JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer that the Job controller uses to count Pods."""

_REHEARSED: Final = "rehearsed"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_SYSTEM_CLASSES: Final = "system-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """A cluster at one moment.

    Attributes:
        source: the objects that the snapshot is built from.
        bundle: the policies and providers.
        allocatable: the allocatable resources by instance type or pool, from ``--allocatable``.
        existing: objects that exist when the rehearsal starts, such as Nodes. They are written directly to etcd.
        created: objects to create through the API server, whose controllers create Pods.
        nodes: the Nodes.
        pools: the node pools, without those of other clusters.
        state: the cluster state for spotgate: node pools, Nodes, and Namespaces.
        not_simulated: the aspects that a rehearsal ignores, one sentence each.
    """

    source: ClusterSource
    bundle: Bundle
    allocatable: Offers
    existing: Sequence[JSON]
    created: Sequence[Manifest]
    nodes: Sequence[RehearsedNode]
    pools: Sequence[Pool]
    state: Sequence[JSON]
    not_simulated: Sequence[str]

    @property
    def objects(self) -> Iterator[JSON]:
        """Yield all objects, existing and created."""
        yield from self.existing
        yield from (manifest.value for manifest in self.created)


def snapshot_of(source: ClusterSource, bundle: Bundle, allocatable: Offers) -> ClusterSnapshot:
    """Return the snapshot of the cluster. Raise CannotJudgeError if the objects are invalid or have no Nodes."""
    view = view_of(source.manifests, bundle.providers, complete=True, offline=not source.live)
    pools = [pool for pool in view.pools or () if not pool.elsewhere]
    source = replace(source, manifests=without_repeats(source.manifests))
    existing: list[JSON] = []
    created: list[Manifest] = []
    others: list[Manifest] = []
    for manifest in source.manifests:
        kind = kind_of_object(manifest.value)
        if kind is None:
            others.append(manifest)
            continue
        value = _expected_object(manifest, kind)
        if kind is NODE:
            existing.append(running_node(value, _expected_allocatable(manifest)))
        elif not _exists_before(kind, value):
            created.append(structs.replace(manifest, value=value))
        elif kind.namespaced or not manifest.name.startswith(_SYSTEM_CLASSES):
            existing.append(_as_stored(value, source.rolled_out))
    # Quotas need their Namespace, but NamespaceAutoProvision creates it only with the first Pod.
    present = {value["metadata"]["name"] for value in existing if value["kind"] == NAMESPACE.kind}
    limited = {value["metadata"]["namespace"] for value in existing if value["kind"] == QUOTA.kind}
    missing = ({"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": name}} for name in limited - present)
    existing += map(_as_stored, missing)
    generated, omitted = _generated_objects(others, [*existing, *(manifest.value for manifest in created)], bundle)
    created += generated
    notes = [*source.notes, *omitted]
    if not source.live:
        created += _storage_classes_for([*existing, *(manifest.value for manifest in created)])
    nodes = [read_node(value, pools, bundle.providers) for value in existing if value["kind"] == NODE.kind]
    described = [pool for pool in pools if not source.live or source.has_added(pool)]
    new = nodes_of_pools(described, nodes, bundle.providers, allocatable)
    nodes += new
    existing += [node.value for node in new]
    _expect_nodes(nodes, existing)
    everything = [*existing, *(manifest.value for manifest in created)]
    sets = (manifest.value.get("spec") or {} for manifest in source.manifests if manifest.kind == STATEFUL_SET.kind)
    if any(spec.get("minReadySeconds") for spec in sets):
        notes.append("minReadySeconds: a StatefulSet creates its next Pod as soon as the previous one is ready")
    if any(template_of(value).spec.schedulingGroup for value in everything):
        notes.append("spec.schedulingGroup: the scheduler of the rehearsal places the Pods of a PodGroup one by one")
    notes += _without_requests(created)
    keep_counts(everything)
    known = [manifest.value for manifest in source.manifests if kind_of_object(manifest.value) in {None, NAMESPACE}]
    return ClusterSnapshot(
        source=source,
        bundle=bundle,
        allocatable=allocatable,
        existing=existing,
        created=created,
        nodes=nodes,
        pools=pools,
        state=[*known, *(node.value for node in nodes)],
        not_simulated=notes,
    )


class _Spec(msgspec.Struct):
    template: Pod | None = None
    replicas: int | None = None
    parallelism: int | None = None


class _Workload(msgspec.Struct):
    """The fields of an object that a rehearsal reads. The API server validates the others."""

    metadata: ObjectMeta
    spec: _Spec | None = None


def _expected_object(manifest: Manifest, kind: RehearsedKind) -> JSON:
    """Return the object with its namespace set. Raise CannotJudgeError if a field that is read is malformed."""
    try:
        msgspec.convert(manifest.value, Pod if kind is POD else _Workload)
        if manifest.kind == BUDGET:
            budget_from(manifest.value)
    except (msgspec.ValidationError, MalformedObjectError) as error:
        raise CannotJudgeError(f"{manifest.file}:{manifest.line}: {manifest.kind} {manifest.name}: {error}") from None
    metadata = dict(manifest.metadata)
    if kind.namespaced:
        metadata.setdefault("namespace", "default")
    value = {**manifest.value, "metadata": metadata}
    if manifest.kind == STATEFUL_SET.kind and isinstance(spec := value.get("spec"), dict):
        # The controller measures these seconds in real time, which a rehearsal doesn't simulate.
        value["spec"] = {key: member for key, member in spec.items() if key != "minReadySeconds"}
    return value


def keep_counts(objects: Iterable[JSON]) -> None:
    """Set minAvailable of budgets that cover Pods of custom resources to the desiredHealthy of their status.

    The disruption controller reads the scale of the owners. A rehearsal has neither these owners nor their CRDs.
    """
    pods = [value for value in objects if value["kind"] == POD.kind]
    custom = [pod["metadata"] for pod in pods if (owner := controller_of(pod)) and group_kind_of(owner) not in BY_NAME]
    for value in objects if custom else ():
        status, namespace = value.get("status") or {}, value["metadata"].get("namespace")
        least = status.get("desiredHealthy")
        if value["kind"] == BUDGET and status.get("expectedPods") and isinstance(least, int):
            budget = budget_from(value)
            if any(pod["namespace"] == namespace and budget.covers(pod.get("labels") or {}) for pod in custom):
                value["spec"] = merge_patch(value["spec"], {"maxUnavailable": None, "minAvailable": least})


def _exists_before(kind: RehearsedKind, value: JSON) -> bool:
    """Return whether an object exists before the rehearsal starts."""
    runs = kind is POD and bool((value.get("spec") or {}).get("nodeName"))
    return runs or kind in {NAMESPACE, QUOTA} or bool(value["metadata"].get("uid"))


def _generated_objects(
    others: Iterable[Manifest], objects: Iterable[JSON], bundle: Bundle
) -> tuple[list[Manifest], list[str]]:
    """Return the Jobs and Pods of workloads whose controllers a rehearsal doesn't run, and notes on omitted kinds.

    Skip workloads that own one of the objects already. Raise CannotJudgeError if a workload is malformed.
    """
    owners = {
        (owner.get("kind"), value["metadata"].get("namespace", ""), owner.get("name"))
        for value in objects
        for owner in value["metadata"].get("ownerReferences") or ()
    }
    created: list[Manifest] = []
    unread: set[str] = set()
    pools = {(reader.group, reader.kind) for reader in bundle.readers}
    for manifest in others:
        if (manifest.kind, manifest.namespace or "default", manifest.name) in owners:
            continue
        try:
            children = pods_without_controller({**manifest.value, "metadata": manifest.metadata})
        except (AttributeError, KeyError, TypeError) as error:
            raise CannotJudgeError(
                f"{manifest.file}:{manifest.line}: {manifest.kind} {manifest.name} is malformed: {error!r}"
            ) from None
        created += (structs.replace(manifest, value=value) for value in children)
        if not children and (manifest.group, manifest.kind) not in pools:
            unread.add(manifest.kind)
    about = "the rehearsal doesn't run the controllers of these kinds; pass the Pods that they create"
    return created, [f"{', '.join(sorted(unread))}: {about}"] if unread else []


def _expect_nodes(nodes: Iterable[RehearsedNode], existing: Iterable[JSON]) -> None:
    """Raise CannotJudgeError if there are no Nodes, or a Pod is bound to a missing Node."""
    names = {node.name for node in nodes}
    if not names:
        raise CannotJudgeError(
            "spotgate rehearse: there are no nodes: pass Nodes or node pools with --state, or --kubeconfig"
        )
    for pod in existing:
        if pod["kind"] == POD.kind and (node := pod["spec"].get("nodeName")) and node not in names:
            metadata = pod["metadata"]
            raise CannotJudgeError(
                f"spotgate rehearse: Pod {metadata['namespace']}/{metadata['name']} is on Node {node}, which is not "
                "in the snapshot: read Nodes and Pods at the same time, or omit the Pod"
            )


def _storage_classes_for(objects: Sequence[JSON]) -> Iterator[Manifest]:
    """Yield the missing StorageClasses that claims use by name or by default."""
    classes = [value["metadata"] for value in objects if value["kind"] == STORAGE_CLASS.kind]
    claims = [value for value in objects if value["kind"] == CLAIM.kind]
    for value in objects:
        claims += (value["spec"].get("volumeClaimTemplates") or ()) if value["kind"] == STATEFUL_SET.kind else ()
    names = {(claim.get("spec") or {}).get("storageClassName") or _REHEARSED for claim in claims}
    if any((metadata.get("annotations") or {}).get(_DEFAULT_CLASS) == "true" for metadata in classes):
        names.discard(_REHEARSED)
    for name in sorted(names - {metadata["name"] for metadata in classes}):
        value = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": STORAGE_CLASS.kind,
            "metadata": {"name": name, "annotations": {_DEFAULT_CLASS: "true"} if name == _REHEARSED else {}},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        yield manifest_of("spotgate rehearse", value)


def _as_stored(value: JSON, rolled_out: frozenset[WorkloadIdentity] = frozenset()) -> JSON:
    """Return an object as stored in etcd: with a UID, and without the fields that the API server adds on reads."""
    metadata = stored_metadata(value["metadata"])
    stored = {**value, "metadata": metadata}
    if value["kind"] == POD.kind:
        # The owners of other finalizers don't run here, so the Pod could never be deleted.
        metadata["finalizers"] = [name for name in metadata.get("finalizers") or () if name == JOB_TRACKING]
        if not value.get("status") and value["spec"].get("nodeName"):
            types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ready = [{"type": type_, "status": "True", "lastTransitionTime": CREATED} for type_ in types]
            stored["status"] = {"phase": "Running", "conditions": ready}
    elif value["kind"] == QUOTA.kind:
        stored["status"] = {}  # the status may count objects that the snapshot lacks
    elif value["kind"] in {STATEFUL_SET.kind, DAEMON_SET.kind}:
        # The snapshot has no ControllerRevisions, and the template may differ from that of the Pods. RollingUpdate
        # would replace such Pods.
        strategy = "RollingUpdate" if workload_identity(value) in rolled_out else "OnDelete"
        stored["spec"] = {**value["spec"], "updateStrategy": {"type": strategy}}
    return stored


def _without_requests(created: Sequence[Manifest]) -> Iterator[str]:
    """Yield a note for each workload without resource requests, unless a LimitRange may set them."""
    limited = {manifest.namespace for manifest in created if manifest.kind == LIMIT_RANGE.kind}
    for manifest in created:
        spec = template_of(manifest.value).spec
        if spec.containers and not quantities_of(spec) and manifest.namespace not in limited:
            yield (
                f"{manifest.value['kind']} {manifest.name} requests no resources, so the scheduler can place its Pods "
                "on any node"
            )


def _expected_allocatable(manifest: Manifest) -> Mapping[str, Any]:
    """Return a Node's allocatable resources. Raise CannotJudgeError if they are missing or aren't quantities."""
    status = manifest.value.get("status") or {}
    offered = status.get("allocatable") or status.get("capacity")
    if not offered:
        raise CannotJudgeError(
            f"{manifest.file}:{manifest.line}: Node {manifest.name} has no status.allocatable, so nothing can be "
            "scheduled there: add it, as in the output of `kubectl get node -o yaml`"
        )
    for resource, amount in offered.items():
        if amount_of(amount) is None:
            raise CannotJudgeError(
                f"{manifest.file}:{manifest.line}: Node {manifest.name}: {amount!r} isn't a quantity (at "
                f"status.allocatable[{resource!r}]); write one such as 8, 500m, or 32Gi"
            )
    return dict(offered)
