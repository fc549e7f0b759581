"""Work is linear and bounded, counted in lines of Python and calls into C, which don't depend on the machine's load."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import BUNDLE, review
from tests.engine.test_budgets import MANY, keys
from webhook.base import bounds
from webhook.capacity.placement import target as targeting
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.inputs.state import FileState
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.node_pool_rules.karpenter import BUDGETS_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

JSON = dict[str, Any]

VIEW = FileState([Path(__file__).parents[2] / "examples/state"], BUNDLE.providers).view()

STEPS_OF_A_BYTE = 4
"""The limit of steps for each added byte; counting and comparing mostly happens in C, without a step."""

PODS = "pods"
CKS = "compute.coreweave.com/nodepools"
KARPENTER = "karpenter.sh/nodepools"
RAY = "ray.io/rayclusters"
ASO = "infrastructure.cluster.x-k8s.io/azureasomanagedmachinepools"
GKE = "container.cnrm.cloud.google.com/containernodepools"


def answer(data: bytes) -> None:
    """Run both phases, from the bytes of the review to those of the answer."""
    with patch.object(targeting, "_KIND_LENGTH", -1):  # disable the cache
        for phase in Phase:
            request, context = decode_review(data), Context(phase=phase, now=utc_now(), view=VIEW)
            respond(request.uid, decide(request, BUNDLE.index, context), phase)


def steps(data: bytes) -> int:
    """Count the steps of `answer`."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        answer(data)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count


def on_spot(parts: Callable[[int], JSON], count: int) -> JSON:
    value = parts(count)
    metadata = value.get("metadata", {})
    labels = {**metadata.get("labels", {}), "spotgate.dev/capacity": "spot"}
    return {**value, "metadata": {"name": "x", **metadata, "labels": labels}}


def karpenter(requirements: list[JSON] | None = None, budgets: list[JSON] | None = None, **parts: object) -> JSON:
    spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    template = {"spec": {"requirements": [spot, *(requirements or [])], **parts}}
    return {"metadata": {"name": "x"}, "spec": {"template": template, "disruption": {"budgets": budgets or []}}}


def grace(duration: str) -> JSON:
    pool = karpenter()
    pool["spec"]["template"]["spec"]["terminationGracePeriod"] = duration
    return pool


def cks(**parts: object) -> JSON:
    return {"metadata": {"name": "x"}, "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 1, **parts}}


def taints(count: int) -> list[JSON]:
    return [{"key": f"key-{number}", "value": "v", "effect": "NoSchedule"} for number in range(count)]


def budget(number: int) -> JSON:
    return {"nodes": str(number + 1), "schedule": f"{number % 60} * * * *", "duration": "1h"}


def groups(count: int) -> JSON:
    template = {"metadata": {"labels": {"spotgate.dev/capacity": "spot"}}, "spec": {"containers": [{"name": "a"}]}}
    return {
        "spec": {"workerGroupSpecs": [{"groupName": f"g{number}", "template": template} for number in range(count)]}
    }


IN_POOLS: list[tuple[str, str, int, Callable[[int], JSON]]] = [
    (
        "requirements",
        KARPENTER,
        bounds.POOL_ITEMS - 1,
        lambda count: karpenter([{"key": f"k{number}", "operator": "In", "values": ["a"]} for number in range(count)]),
    ),
    (
        "requirements on one key",
        KARPENTER,
        bounds.POOL_ITEMS - 1,
        lambda count: karpenter(
            [{"key": "k", "operator": "NotIn", "values": [str(number)]} for number in range(count)]
        ),
    ),
    (
        "values",
        KARPENTER,
        bounds.POOL_ITEMS,
        lambda count: karpenter(
            [{"key": "k", "operator": "In", "values": [f"m{number}.xlarge" for number in range(count)]}]
        ),
    ),
    (
        "budgets",
        KARPENTER,
        BUDGETS_AT_MOST,
        lambda count: karpenter(budgets=[budget(number) for number in range(count)]),
    ),
    ("resources", ASO, 80, lambda count: {"metadata": {"name": "x"}, "spec": {"resources": [1] * count}}),
    (
        "accelerators",
        GKE,
        80,
        lambda count: {"metadata": {"name": "x"}, "spec": {"nodeConfig": {"guestAccelerator": ["x"] * count}}},
    ),
    ("parts of a duration", KARPENTER, 1, lambda count: grace("1h" * count)),
    (
        "digits of a duration",
        KARPENTER,
        9,
        lambda count: karpenter(budgets=[{**budget(0), "duration": f"{10**count}h"}]),
    ),
    ("taints", KARPENTER, bounds.POOL_ITEMS, lambda count: karpenter(taints=taints(count))),
    ("taints", CKS, bounds.POOL_ITEMS, lambda count: cks(nodeTaints=taints(count))),
    ("labels", CKS, bounds.POOL_ITEMS, lambda count: cks(nodeLabels=keys(count))),
]

GROWING = [
    *(
        pytest.param(PODS, bound.at_most - 1, partial(on_spot, parts), id=f"{bound.field} {number}")
        for number, (bound, parts) in enumerate(MANY)
    ),
    *(pytest.param(resource, most, made, id=f"{resource} {what}") for what, resource, most, made in IN_POOLS),
    pytest.param(RAY, TEMPLATES_AT_MOST, groups, id="pod templates"),
]


@pytest.mark.parametrize(("resource", "most", "made"), GROWING)
@given(share=st.floats(0.3, 0.5))
@settings(max_examples=3)
def test_doubling_a_field_at_most_doubles_the_work(
    resource: str, most: int, made: Callable[[int], JSON], share: float
) -> None:
    count = int(most * share)
    answer(review(made(count), resource))  # compile and import once
    once, twice = steps(review(made(count), resource)), steps(review(made(2 * count), resource))
    assert twice <= 2.2 * once, f"{count}: {once} steps, {2 * count}: {twice}"


@pytest.mark.parametrize(("resource", "most", "made"), GROWING)
def test_beyond_its_bound_a_larger_field_is_only_counted(resource: str, most: int, made: Callable[[int], JSON]) -> None:
    counts = (most, 2 * most, 20 * most)
    at_bound, beyond, far_beyond = (steps(review(made(count), resource)) for count in counts)
    added = len(review(made(20 * most), resource)) - len(review(made(most), resource))
    assert far_beyond <= 1.1 * max(at_bound, beyond) + STEPS_OF_A_BYTE * added, f"{at_bound}, {beyond}, {far_beyond}"
