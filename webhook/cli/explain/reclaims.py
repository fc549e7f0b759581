"""Reclaims of the Pods that a request makes: the timeline of each, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import NotTargeting, target_of
from webhook.cli.explain.timeline import timeline_of
from webhook.documents import field_path
from webhook.kube.pod_decoding import decode_pod
from webhook.kube.templates import pod_of
from webhook.policy.terms import Enforcement
from webhook.review import MalformedObjectError, decode_object, is_null

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.bundle import Bundle
    from webhook.capacity.placement.budget import GraceBudget
    from webhook.capacity.placement.target import Target
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.cli.explain.timeline import ReclaimTimeline
    from webhook.cli.judging.judge import PhaseDecisions
    from webhook.cluster.protocol import ClusterView
    from webhook.kube.pod import Pod

_TOLERATING: Final = "tolerating_is_targeting"
"""A field that policies have that look for Pods that target spot."""


class NoTimeline(msgspec.Struct, frozen=True):
    """Describe a Pod or pod template without a timeline, and why."""

    where: str
    because: str


def reclaims(trace: PhaseDecisions, bundle: Bundle, view: ClusterView) -> Iterator[ReclaimTimeline | NoTimeline]:
    """Yield the timeline of each Pod that the request makes, or why there is none."""
    budgets = GraceBudgets(bundle.providers)
    labels = view.namespaces.get(trace.request.namespace, {})
    policies = [each.spec for each in bundle.documents if each.is_policy and hasattr(each.spec, _TOLERATING)]
    specs = [spec for spec in policies if spec.enforcement is not Enforcement.OFF]
    for where, written, pod in _pods(trace, bundle):
        target = target_of(
            written,
            labels,
            view,
            bundle.providers,
            provider=next((spec.provider for spec in specs if spec.provider), ""),
            tolerating=any(spec.tolerating_is_targeting for spec in specs),
        )
        if isinstance(target, NotTargeting):
            yield NoTimeline(where, target.because)
        elif target.pools is not None and not target.nodes:
            yield NoTimeline(where, f"it targets spot ({target.because}), and no spot pool takes it")
        elif (strictest := _strictest(target, budgets, bundle)) is None:
            because = "no capacity provider is in play; pass node pools with --state or --kubeconfig"
            yield NoTimeline(where, f"it targets spot ({target.because}), and {because}")
        elif pod.spec.containers:
            budget, provider, pool = strictest
            yield timeline_of(where, written, pod, provider=provider, pool=pool, budget=budget)


def _pods(trace: PhaseDecisions, bundle: Bundle) -> Iterator[tuple[str, Pod, Pod]]:
    """Yield the field path of each Pod that the request makes, the Pod as written, and the Pod after injection."""
    request = trace.request
    if is_null(request.object) or request.operation not in {"CREATE", "UPDATE"}:
        return
    if (request.resource.group, request.path) == ("", "pods"):
        yield "", decode_pod(trace.before), decode_pod(request.object)
        return
    workload = bundle.index.workloads.get((request.resource.group, request.path))
    if workload is None:
        return
    both = (list(workload.templates(decode_object(raw))) for raw in (trace.before, request.object))
    for templates in zip(*both, strict=True):
        try:
            written, injected = (pod_of(each, workload, request) for each in templates)
        except MalformedObjectError:
            continue  # it is said by the engine
        yield field_path(templates[0].path), written, injected


def _strictest(
    target: Target, budgets: GraceBudgets, bundle: Bundle
) -> tuple[GraceBudget, Provider, Pool | None] | None:
    """Return the shortest time to stop that the Pod may get, with its provider and pool, or None if none is known."""
    parts = [(bundle.providers[pool.provider], pool) for pool in target.pools or ()]
    seen = {provider.name for provider, _ in parts}
    nodes: list[tuple[Target, Provider, Pool | None]] = [
        *((replace(target, pools=(pool,), providers=(each,)), each, pool) for each, pool in parts),
        *(
            (replace(target, pools=None, providers=(each,)), each, None)
            for each in target.providers
            if each.name not in seen
        ),
    ]
    options = [(budget, provider, pool) for part, provider, pool in nodes if (budget := budgets.of(part)) is not None]
    return min(options, key=lambda option: option[0].seconds, default=None)
