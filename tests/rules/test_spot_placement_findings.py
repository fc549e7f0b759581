"""What is said about a Pod that targets spot and can't have it, or seems to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.objects import ALL, EKS, KARPENTER, cks_pool, expression, other_pool, view_of
from tests.rules.conftest import subject_of
from tests.rules.placement import (
    CLUSTER,
    CPU,
    CPU_SPOT,
    GPU,
    JSON,
    PREFERRED,
    SPOT,
    changes,
    context_of,
    pod_of,
    required,
    rule,
    said,
)
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.model.decision import Outcome, Trace

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool


CLOSED = (
    cks_pool("h100-leaving", deletionTimestamp="2026-01-01T00:00:00Z"),
    cks_pool("h100-reserved", taints=("node.coreweave.cloud/reserved=x:NoSchedule",)),
)


def test_in_a_workload_the_pod_template_is_what_is_to_be_labelled() -> None:
    twins = (other_pool(KARPENTER, "twin"), other_pool(KARPENTER, "twin", capacity=CapacityType.ON_DEMAND))
    third = other_pool(KARPENTER, "third", gpu=Gpu.YES)
    for pod, pools, remedy in (
        (pod_of(labels=SPOT), (CPU, GPU), "label the pod template `spotgate.dev/capacity: on-demand`"),
        (pod_of(labels=SPOT), CLOSED, "label the pod template `spotgate.dev/capacity: on-demand`"),
        (
            pod_of(labels=SPOT, nodeSelector={"compute.coreweave.com/node-pool": "cpu-control-plane"}),
            CLUSTER,
            "label the pod template `spotgate.dev/capacity: on-demand`",
        ),
        (pod_of(labels=SPOT), (*twins, third), "annotate the pod template `spotgate.dev/node-pool: POOL`"),
    ):
        (violation,) = rule(ALL).validate(subject_of(pod, template=True), context_of(view_of(*pools)))
        assert violation.fix.endswith(f", or {remedy}"), violation.fix


def test_terms_that_would_multiply_beyond_reason_are_said_and_nothing_is_injected() -> None:
    pools = (other_pool(KARPENTER, "k"), other_pool(EKS, "e"))
    terms = [[expression("topology.kubernetes.io/zone", "In", f"z{number}")] for number in range(33)]
    violation = said(pod_of(labels=SPOT, affinity=required(*terms)), view_of(*pools), providers=ALL)

    assert violation.id == "too-many-terms"
    assert "the 33 terms of its own affinity are too many" in violation.reason
    assert "at most 32 can" in violation.detail
    assert len(changes(pod_of(labels=SPOT, affinity=required(*terms[1:])), *pools, providers=ALL)["affinity"]) == 1
    assert changes(pod_of(labels=PREFERRED, affinity=required(*terms)), *pools, providers=ALL)


@pytest.mark.parametrize(
    ("labels", "pools", "fix"),
    [
        (SPOT, (CPU_SPOT, CPU), "nodeSelector `compute.coreweave.com/node-pool: cpu-spot`"),
        (SPOT, (CPU_SPOT, cks_pool("b", gpu=False), CPU), "required node affinity `compute.coreweave.com/node-pool In [b, cpu-spot]`"),
        (SPOT, (CPU_SPOT, other_pool(EKS, "e"), CPU), "required node affinity `compute.coreweave.com/node-pool: cpu-spot` or `eks.amazonaws.com/capacityType: SPOT`"),
        (PREFERRED, (CPU_SPOT, CPU), "preferred node affinity `compute.coreweave.com/node-pool: cpu-spot`"),
    ],
)  # fmt: skip
def test_validation_says_what_a_skipped_mutation_left_out(labels: JSON, pools: tuple[Pool, ...], fix: str) -> None:
    (violation,) = rule(ALL).validate(subject_of(pod_of(labels=labels)), context_of(view_of(*pools)))

    assert violation.id == "not-placed"
    assert violation.field == "spec.tolerations"
    assert violation.outcome is Outcome.WARN
    toleration = "toleration `{key: spot, operator: Equal, value: 'true', effect: NoSchedule}`"
    assert violation.fix == f"add {toleration}, {fix}"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_of(), ["not placed on spot: nothing says that it targets spot"]),
        (
            pod_of(labels=SPOT, annotations={"spotgate.dev/keep": "tolerations"}),
            [
                "targets spot: label spotgate.dev/capacity: spot",
                "NodePool gpu-spot: it has GPUs, and the Pod requests none",
                "it keeps its tolerations",
                "lacks the requirement compute.coreweave.com/node-pool In [cpu-spot]",
            ],
        ),
        (
            pod_of(gpu=True, nodeSelector={"example.com/tier": "spot"}),
            [
                "targets spot: its own nodeSelector or affinity admits only spot",
                "NodePool cpu-spot: it has no GPUs, and the Pod requests some",
                "its own nodeSelector and affinity admit nothing else: no selector is added",
                "lacks a toleration of spot=true:NoSchedule",
                "lacks a toleration of is_gpu=true:PreferNoSchedule",
            ],
        ),
    ],
)
def test_the_trace_says_why(pod: JSON, expected: list[str]) -> None:
    trace = Trace()
    rule().plan(subject_of(pod, trace=trace), context_of(view_of(*CLUSTER)))

    assert [text for _, _, text in trace.steps] == expected
