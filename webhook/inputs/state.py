"""Read a cluster's state from manifests: node pools, namespace labels, Nodes, budgets, autoscalers, first ordinals.

Node pools can be list items in a file: the node groups of eksctl's ClusterConfig.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from webhook.base.exits import CannotJudgeError
from webhook.base.field_paths import FieldPath, field_path
from webhook.base.text import described
from webhook.capacity.providers.joins import assume_here, join, sizes_in
from webhook.capacity.providers.provider import Provider, pool_resources, readers_by_resource, sizers_by_resource
from webhook.capacity.view import ClusterView, FixedState
from webhook.cluster.view import NodeFacts, by_namespace, namespace_labels, node_facts, with_nodes
from webhook.inputs.objects import DEFAULT_NAMESPACE, Manifest, node_of, read_manifests, written_identity
from webhook.kube import disruption
from webhook.kube.filling import mapping
from webhook.kube.references import CLUSTER_SCOPED, KINDS, Reference, key_of, reference_from
from webhook.kube.resources import CRD_KIND
from webhook.kube.workload import AUTOSCALERS, Autoscaler, autoscaler_from
from webhook.model.review import MalformedObjectError
from webhook.policy.errors import Problem, problem_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from webhook.capacity.providers.pool import Pool, Size
    from webhook.capacity.providers.reader import PoolReader
    from webhook.capacity.providers.reader_schema import ListedInSpec
    from webhook.kube.disruption import DisruptionBudget


class StateErrors(CannotJudgeError):  # noqa: N818 - several errors
    """Manifests of the cluster's state that can't be read. ``str()`` has a line for each problem."""


class FileState(FixedState):
    """The `ClusterState` that files describe, read once. The caller watches the files.

    The cluster has nothing that isn't in the files. Raise StateErrors with all problems if a file can't be read.
    """

    def __init__(self, paths: Iterable[Path], providers: Mapping[str, Provider]) -> None:
        manifests = read_manifests(paths)
        if manifests.problems:
            raise StateErrors("\n".join(problem_lines(manifests.problems)))
        super().__init__(view_of(manifests.objects, providers, complete=True))


def telling_kinds(providers: Collection[Provider]) -> frozenset[str]:
    """Return the kinds of objects that affect others: the cluster's state, and CustomResourceDefinitions."""
    pools = (resource.kind for resource in pool_resources(providers))
    lists = (listed_in.kind for _, listed_in in _listing_readers(providers))
    return frozenset(
        ("Namespace", "Node", "StatefulSet", CRD_KIND, disruption.KIND, *AUTOSCALERS, *KINDS, *pools, *lists)
    )


def view_of(
    manifests: Iterable[Manifest], providers: Mapping[str, Provider], *, complete: bool, offline: bool = True
) -> ClusterView:
    """Return the view of a cluster with these objects.

    If two objects have the same identity, the later one counts. ``complete``: the cluster has no other node pools and
    PodDisruptionBudgets; otherwise this holds only if there is at least one. ``offline``: nothing else is known, so
    pools that describe one cluster describe this one, unless there are Nodes or a provider names this cluster.
    """
    all_readers, all_sizers = readers_by_resource(providers.values()), sizers_by_resource(providers.values())
    readers = {(reader.any.group, reader.any.kind): reader for reader in all_readers.values()}
    sizers = {(same_kind[0].group, same_kind[0].kind): same_kind for same_kind in all_sizers.values()}
    pools: dict[tuple[str, ...], Pool] = {}
    sizes: dict[tuple[str, str, str], tuple[Size, ...]] = {}
    namespaces: dict[str, dict[str, str]] = {}
    nodes: list[NodeFacts] = []
    budgets: dict[tuple[str, str], DisruptionBudget | None] = {}
    scaling: dict[tuple[str, str], Autoscaler] = {}
    listed = with_listed_pools(manifests, providers.values())
    for manifest in listed:
        if reader := readers.get((manifest.group, manifest.kind)):
            pool = reader.read(_with_namespace(manifest) if reader.any.namespaced else manifest.value)
            pools[pool.identity] = pool
        elif same_kind := sizers.get((manifest.group, manifest.kind)):
            value = _with_namespace(manifest)
            sizes[manifest.kind, value["metadata"]["namespace"], manifest.name] = sizes_in(value, same_kind)
        elif (manifest.api_version, manifest.kind) == ("v1", "Namespace"):
            # Applying a Namespace keeps the labels that its manifest doesn't name.
            applied = namespaces.get(manifest.name, {})
            namespaces[manifest.name] = namespace_labels(manifest.name, {**applied, **manifest.labels})
        elif (manifest.api_version, manifest.kind) == ("v1", "Node"):
            nodes.append(node_facts(manifest.labels, node_of(manifest), providers.values(), manifest.name))
        elif (manifest.group, manifest.kind) == (disruption.GROUP, disruption.KIND):
            key = (manifest.namespace or DEFAULT_NAMESPACE, manifest.name)
            budgets[key] = None  # its coverage is unknown if it can't be read
            with suppress(MalformedObjectError):
                budgets[key] = disruption.budget_from(manifest.value)
        elif autoscaler := autoscaler_from(manifest.group, manifest.kind, manifest.name, manifest.value):
            scaling[manifest.namespace or DEFAULT_NAMESPACE, f"{manifest.kind}/{manifest.name}"] = autoscaler
    joined, templates = join((*pools.values(), *sizes.values()))
    if offline and not nodes and not any(reader.any.facts.this_cluster for reader in readers.values()):
        joined = assume_here(joined)
    known = {key: budget for key, budget in budgets.items() if budget is not None}
    view = ClusterView(
        pools=joined if complete or joined else None,
        templates=templates,
        namespaces=namespaces,
        why_unknown="The files contain no node pool.",
        remedy="pass the manifests of the cluster's node pools with --state",
        budgets=by_namespace(known) if (complete or known) and len(known) == len(budgets) else None,
        autoscalers=by_namespace(scaling),
        references=_references(listed),
        ordinal_starts={
            f"{manifest.namespace or DEFAULT_NAMESPACE}/{manifest.name}": start
            for manifest in listed
            if (manifest.group, manifest.kind) == ("apps", "StatefulSet")
            and type(start := mapping(manifest.value, "spec", "ordinals").get("start", 0)) is int
        },
    )
    return with_nodes(view, nodes)


def _references(manifests: Iterable[Manifest]) -> dict[str, Reference]:
    """Return the objects that Pods name."""
    references: dict[str, Reference] = {}
    for manifest in manifests:
        group, kind, namespace, name = written_identity(manifest)
        if group == KINDS.get(kind, (None,))[0]:
            key = key_of(kind, "" if kind in CLUSTER_SCOPED else namespace, name)
            references[key] = reference_from(manifest.value)
    return references


def _with_namespace(manifest: Manifest) -> dict[str, Any]:
    """Return the object with its namespace."""
    return {**manifest.value, "metadata": {**manifest.metadata, "namespace": manifest.namespace or DEFAULT_NAMESPACE}}


class ListedPool(Manifest, frozen=True):
    """A node pool as an object. ``spec`` is the list item, and the namespace is the name of the listing object."""

    def position_of(self, path: FieldPath) -> tuple[int, int]:
        """Return the line and column, from 1, of a field named by `written_field`."""
        return self.document.position(path or self.path)

    def written_field(self, field: str) -> str:
        """Return the field in the object that lists the pool."""
        item = field_path(self.path)
        if field.startswith("metadata"):
            return f"{item}.name"
        return f"{item}{field.removeprefix('spec')}" if field.startswith("spec") else item


def with_listed_pools(manifests: Iterable[Manifest], providers: Iterable[Provider]) -> list[Manifest]:
    """Return the manifests, each followed by the node pools that it lists."""
    readers = _listing_readers(providers)
    return [
        pool
        for manifest in manifests
        for pool in (manifest, *(item for item in _items(manifest, readers) if isinstance(item, ListedPool)))
    ]


def list_problems(manifests: Iterable[Manifest], providers: Iterable[Provider]) -> Iterator[Problem]:
    """Yield the problems with fields that aren't lists, and with items that aren't node pools."""
    readers = _listing_readers(providers)
    for manifest in manifests:
        yield from (item for item in _items(manifest, readers) if not isinstance(item, ListedPool))


def _listing_readers(providers: Iterable[Provider]) -> list[tuple[PoolReader, ListedInSpec]]:
    readers = (reader for provider in providers for reader in provider.readers)
    return [(reader, reader.listed_in) for reader in readers if reader.listed_in is not None]


def _items(manifest: Manifest, readers: Iterable[tuple[PoolReader, ListedInSpec]]) -> Iterator[ListedPool | Problem]:
    """Yield the node pools that an object lists, and a problem for each invalid item."""
    for reader, listed_in in readers:
        if manifest.kind != listed_in.kind or manifest.group != reader.group:
            continue
        items = manifest.value.get(field := listed_in.field)
        if not isinstance(items, list | None):
            yield manifest.problem((field,), f"expected a list, got {described(items)}")
            continue
        for index, item in enumerate(items or ()):
            if not isinstance(item, dict):
                yield manifest.problem((field, index), f"expected a map, got {described(item)}")
                continue
            name = item.get("name")
            metadata = {"name": name if isinstance(name, str) else "", "namespace": manifest.name}
            value = {"apiVersion": manifest.api_version, "kind": reader.kind, "metadata": metadata, "spec": item}
            path = (*manifest.path, field, index)
            yield ListedPool(manifest.document, path, manifest.api_version, reader.kind, value)
