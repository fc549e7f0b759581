"""Read the live cluster of ``--kubeconfig`` once, without writing to it.

Import this module only with a kubeconfig: its imports take a third of a second.
"""

from __future__ import annotations

import asyncio
from itertools import chain, product
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.joins import merge_pools
from webhook.cluster.api import Api, ApiError
from webhook.cluster.connection import Connection, run_on_cluster
from webhook.cluster.discovery import ServedResource
from webhook.cluster.resources import read_cluster
from webhook.cluster.view import by_namespace
from webhook.inputs.objects import DEFAULT_NAMESPACE, Manifest
from webhook.inputs.state import view_of
from webhook.model.review import OPERATIONS
from webhook.policy.errors import Problem
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.inputs.options import JudgingOptions
    from webhook.judging.kinds import ResourceKinds
    from webhook.kube.disruption import DisruptionBudget
    from webhook.kube.resources import Resource

_ANSWER: Final = 10.0
"""The timeout of each response of the API server in seconds. A page of 500 Nodes is 10 MB."""

_AT_ONCE: Final = 8
"""The number of concurrent reads. Each takes a connection, and the API server has other clients."""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """A live cluster, and the objects as `kubectl` sends them.

    Attributes:
        requests: the given objects, each with a namespace and its operation. A deleted one has its stored fields.
        stored: the stored versions of these objects.
        problems: the objects that can't be read.
    """

    view: ClusterView
    requests: list[tuple[Manifest, str]]
    stored: list[Manifest]
    problems: list[Problem]


def read_live(options: JudgingOptions, objects: Sequence[Manifest], bundle: Bundle, kinds: ResourceKinds) -> Live:
    """Read the cluster to evaluate these objects against.

    The option ``operation`` is CREATE (read no objects), UPDATE, DELETE, or None (as applying them requires). Raise
    CannotJudgeError if the kubeconfig is invalid, or the API server doesn't respond or rejects the credentials.
    """
    connection = Connection(kubeconfig=options.kubeconfig, context=options.context)
    return run_on_cluster("check", connection, lambda api: _read(api, options, objects, bundle, kinds))


def applied(view: ClusterView, objects: Iterable[Manifest], providers: Mapping[str, Provider]) -> ClusterView:
    """Return the cluster after applying these objects."""
    given = view_of(objects, providers, complete=True, offline=False)
    kubelets = [kubelet for kubelet in (view.oldest_kubelet, given.oldest_kubelet) if kubelet is not None]
    return replace(
        view,
        pools=None if view.pools is None else merge_pools(view.pools, given.pools or ()),
        namespaces=dict(view.namespaces)
        | {name: {**view.namespaces.get(name, {}), **labels} for name, labels in given.namespaces.items()},
        providers=view.providers | given.providers,
        spot_providers=view.spot_providers | given.spot_providers,
        node_groups=view.node_groups or given.node_groups,
        nodes={**given.nodes, **view.nodes},
        oldest_kubelet=min(kubelets, default=None),
        budgets=_budgets(view, given),
        autoscalers=given.autoscalers,
        references={**view.references, **given.references},
    )


def _budgets(view: ClusterView, given: ClusterView) -> dict[str, tuple[DisruptionBudget, ...]] | None:
    """Return the cluster's budgets, overridden by given ones of the same name, or None if they are unknown."""
    if view.budgets is None or given.budgets is None:
        return None
    both = chain(view.budgets.items(), given.budgets.items())
    return by_namespace({(namespace, budget.name): budget for namespace, budgets in both for budget in budgets})


async def _read(
    api: Api, options: JudgingOptions, objects: Sequence[Manifest], bundle: Bundle, kinds: ResourceKinds
) -> Live:
    view, errors = await read_cluster(api, bundle.providers, budgets=bundle.reads_budgets, seconds=_ANSWER)
    problems = [Problem(str(options.kubeconfig), 0, 0, "", sentence) for sentence in errors.sentences]
    sent = [_sent(manifest, kinds.resource(manifest), api.namespace or DEFAULT_NAMESPACE) for manifest in objects]
    stored: list[Manifest | None] = [None] * len(sent)
    if options.operation != "CREATE":
        stored = await _find(api, sent, bundle, kinds, problems)
    if options.operation == "DELETE":
        sent = [in_cluster or manifest for manifest, in_cluster in zip(sent, stored, strict=True)]
    return Live(
        view=view,
        requests=[
            (manifest, options.operation or ("CREATE" if current is None else "UPDATE"))
            for manifest, current in zip(sent, stored, strict=True)
        ],
        stored=[manifest for manifest in stored if manifest is not None],
        problems=problems,
    )


def _sent(manifest: Manifest, resource: Resource | None, namespace: str) -> Manifest:
    """Return the object as `kubectl` sends it: with a namespace."""
    if resource is None or not resource.namespaced or manifest.namespace or not manifest.metadata:
        return manifest
    metadata = {**manifest.metadata, "namespace": namespace}
    return replace(manifest, value={**manifest.value, "metadata": metadata})


async def _find(
    api: Api, sent: Iterable[Manifest], bundle: Bundle, kinds: ResourceKinds, problems: list[Problem]
) -> list[Manifest | None]:
    """Return each object as stored in the cluster, or None if it doesn't exist."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def find(manifest: Manifest) -> Manifest | None:
        resource = kinds.resource(manifest)
        if resource is None or not manifest.name or not _is_looked_at(resource, bundle):
            return None
        served = ServedResource(resource=resource, version=manifest.version, verbs=frozenset())
        within = quote(manifest.namespace, safe="") if resource.namespaced else ""
        path = f"{served.path_in(within)}/{quote(manifest.name, safe='')}"
        async with slots:
            try:
                value = await api.find(path, dict, _ANSWER)
            except ApiError as error:
                text = f"the cluster's version of this object can't be read: {error}"
                problems.append(manifest.problem((), text))
                return None
        return None if value is None else replace(manifest, value=value)

    return await asyncio.gather(*map(find, sent))


def _is_looked_at(resource: Resource, bundle: Bundle) -> bool:
    """Return whether a policy can evaluate these objects: don't read Secrets without need."""
    ways = product(Phase, OPERATIONS, [resource.group], [resource.plural])
    return any(bundle.index.route_of(*way) is not None for way in ways)
