"""Find the Pods that a request creates, each with the timeline of a reclaim of its node."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from webhook.base.bounds import OverBoundError
from webhook.base.field_paths import field_path
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import NotTargeting
from webhook.kube.pod_decoding import decode_pod
from webhook.kube.templates import pod_of
from webhook.model.review import MalformedObjectError, decode_object, is_null
from webhook.policy.common import TargetingSpec
from webhook.policy.terms import Enforcement
from webhook.reclaim.timeline import ReclaimTimeline, timeline_of
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.kube.pod import Pod
    from webhook.model.decision import PhaseDecisions


class NoTimeline(msgspec.Struct, frozen=True):
    """A Pod or pod template without a timeline, and the reason."""

    where: str
    because: str

    def __str__(self) -> str:
        return f"{self.where}: {self.because}" if self.where else self.because


def reclaims(trace: PhaseDecisions, bundle: Bundle, view: ClusterView) -> Iterator[ReclaimTimeline | NoTimeline]:
    """Yield the timeline of each Pod that the request creates, or the reason why it has none."""
    budgets = GraceBudgets(bundle.providers)
    policies = [document.spec for document in bundle.documents if isinstance(document.spec, TargetingSpec)]
    specs = [spec for spec in policies if spec.enforcement is not Enforcement.OFF]
    # If policies name different providers, none of them says which one this cluster has.
    rivals = any(policy.standing.rivals for policy in bundle.policies)
    provider = next((spec.provider for spec in specs if spec.provider and not rivals), ())
    targeting = Targeting(bundle.providers, provider, any(spec.tolerating_is_targeting for spec in specs))
    for where, written, pod in _pods(trace, bundle):
        target = targeting.target_of_pod(written, trace.request.namespace, view)
        if isinstance(target, NotTargeting):
            yield NoTimeline(where, target.because)
        elif target.pools is not None and not target.nodes:
            yield NoTimeline(where, f"it targets spot ({target.because}), and no spot pool takes it")
        elif (strictest := budgets.strictest(target)) is None:
            because = "no capacity provider is in play; pass node pools with --state or --kubeconfig"
            yield NoTimeline(where, f"it targets spot ({target.because}), and {because}")
        elif pod.spec.containers:
            budget, its_provider, pool = strictest
            yield timeline_of(where, written, pod, provider=its_provider, pool=pool, budget=budget)


def _pods(trace: PhaseDecisions, bundle: Bundle) -> Iterator[tuple[str, Pod, Pod]]:
    """Yield the field path of each Pod that the request creates, the Pod as written, and the Pod after injection."""
    request = trace.request
    if is_null(request.object) or request.operation not in {"CREATE", "UPDATE"}:
        return
    if (request.resource.group, request.path) == ("", "pods"):
        with suppress(OverBoundError):  # the engine reports it
            yield "", decode_pod(trace.before), decode_pod(request.object)
        return
    workload = bundle.index.workloads.get((request.resource.group, request.path))
    if workload is None:
        return
    both = (list(workload.templates(decode_object(raw))) for raw in (trace.before, request.object))
    for templates in zip(*both, strict=True):
        try:
            written, injected = (pod_of(template, workload, request) for template in templates)
        except (MalformedObjectError, OverBoundError):
            continue  # the engine reports it
        yield field_path(templates[0].path), written, injected
