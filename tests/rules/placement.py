"""Helpers for tests of ``SpotPlacement``: a small CKS cluster, Pods, and the rule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.builders import ONLY_CKS, cks_pool, view_of
from tests.rules.conftest import owned_by, patched, subject_of
from tests.specs import spec_of
from webhook.model.decision import Outcome
from webhook.rules.context import Context, Phase
from webhook.rules.protocol import Facts
from webhook.rules.spot_placement.rule import KIND, SpotPlacement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.model.decision import Violation

JSON = dict[str, Any]

SPOT = {"spotgate.dev/capacity": "spot"}
PREFERRED = {"spotgate.dev/capacity": "spot-preferred"}
ON_DEMAND = {"spotgate.dev/capacity": "on-demand"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

TAINTS = ("spot=true:NoSchedule", "is_gpu=true:PreferNoSchedule")
GPU_SPOT = cks_pool("gpu-spot", labels={"example.com/tier": "spot"}, taints=TAINTS)
CPU_SPOT = cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",))
GPU = cks_pool("gpu", spot=False, labels={"example.com/tier": "paid"})
CPU = cks_pool("cpu-control-plane", spot=False, gpu=False)
CLUSTER = (CPU, CPU_SPOT, GPU, GPU_SPOT)


def rule(providers: Mapping[str, Provider] = ONLY_CKS, **spec: Any) -> SpotPlacement:
    compiled = KIND.compile(spec_of(KIND.spec, spec), Facts(providers))
    assert isinstance(compiled, SpotPlacement)
    return compiled


def context_of(view: ClusterView) -> Context:
    return Context(phase=Phase.MUTATE, now=datetime(2026, 11, 21, tzinfo=UTC), view=view)


def pod_of(
    *, labels: JSON | None = None, annotations: JSON | None = None, owner: str = "", gpu: bool = False, **spec: Any
) -> JSON:
    metadata: JSON = {"name": "pod", "namespace": "team-a", "labels": labels or {}, "annotations": annotations or {}}
    if owner:
        metadata["ownerReferences"] = owned_by(owner, "apps/v1")
    resources = {"limits": {"nvidia.com/gpu": "8"}} if gpu else {}
    return {"metadata": metadata, "spec": {"containers": [{"name": "app", "resources": resources}], **spec}}


def required(*terms: list[JSON]) -> JSON:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}


def placed(
    pod: JSON, view: ClusterView, placement: SpotPlacement | None = None
) -> tuple[JSON, list[JSON], list[Violation]]:
    """Return the Pod after mutation, the patch, and the violations; assert that a second mutation changes nothing."""
    placement = placement or rule()
    context = context_of(view)
    result, patch = patched(pod, subject_of(pod), lambda subject, editor: placement.mutate(subject, editor, context))
    again = patched(result, subject_of(result), lambda subject, editor: placement.mutate(subject, editor, context))
    assert again[1] == []
    return result, patch, list(placement.validate(subject_of(result), context))


def changes(pod: JSON, *pools: Pool, **how: Any) -> JSON:
    """Return the changed members of the spec; assert that there are no violations."""
    view = how.pop("view", None) or view_of(*(pools or CLUSTER))
    result, _, violations = placed(pod, view, rule(**how))
    assert violations == []
    return {key: value for key, value in result["spec"].items() if pod["spec"].get(key) != value}


def violation_of(pod: JSON, view: ClusterView | None = None, **how: Any) -> Violation:
    """Return the violation of a Pod; assert that it is the only one, and that the Pod is unchanged."""
    result, patch, violations = placed(pod, view or view_of(*CLUSTER), rule(**how))
    assert (result, patch) == (pod, [])
    (violation,) = violations
    assert violation.outcome is Outcome.WARN
    assert len(violation.reason) <= 110
    return violation
