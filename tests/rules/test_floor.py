"""The on-demand floor: its size and ordinals. webhook/rules/spot_placement/cases.yaml tests its Pods."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import BUNDLE, cks_pool, decided, other_pool, review, view_of
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, Floor, parse_floor
from webhook.capacity.providers.pool import CapacityType
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.pod_decoding import decode_pod
from webhook.model.patch import apply_all
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView
    from webhook.kube.affinity import Term
    from webhook.model.decision import Decision

JSON = dict[str, Any]

VIEW = view_of(
    cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",)), cks_pool("cpu", spot=False, gpu=False)
)
RUNNING = replace(VIEW, floor_controller=True)


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ("2", Floor(2, 0)),
        ("0", Floor(0, 0)),
        ("20%", Floor(0, 20)),
        ("100%", Floor(0, 100)),
        ("2 + 20%", Floor(2, 20)),
        (" 2+20% ", Floor(2, 20)),
        ("101%", None),
        ("2 + 101%", None),
        ("20 %", None),
        ("-1", None),
        ("20% + 2", None),
        ("2.5", None),
        ("", None),
        ("two", None),
        ("٢", None),
    ],
)
def test_the_annotation_has_three_forms(text: str, floor: Floor | None) -> None:
    assert parse_floor(text) == floor


floors = st.builds(Floor, st.integers(0, 30), st.integers(0, 100))


@given(floors, st.integers(0, 200))
def test_the_floor_is_the_base_and_the_percentage_of_the_rest_rounded_up(floor: Floor, count: int) -> None:
    beyond = max(0, count - floor.base)
    need = floor.need(count)
    assert need - min(floor.base, count) == (floor.percent * beyond + 99) // 100
    assert 0 <= need <= count


@given(floors, st.integers(0, 200))
def test_the_floor_keeps_exactly_the_necessary_ordinals_on_demand(floor: Floor, count: int) -> None:
    assert sum(map(floor.keeps, range(count))) == floor.need(count)


def decision_on(manifest: JSON, phase: Phase, view: Any, **how: Any) -> Decision:
    body = review(manifest, f"apps/{manifest['kind'].lower()}s", kind=manifest["kind"])
    return decided(body, phase, view, **how)


def workload(floor: str, kind: str) -> JSON:
    metadata = {"labels": {"spotgate.dev/capacity": "spot"}, "annotations": {FLOOR_ANNOTATION: floor}}
    container = {"name": "main", "image": "registry.example/web:1", "ports": [{"containerPort": 80}]}
    body = {"replicas": 6, "template": {"metadata": metadata, "spec": {"containers": [container]}}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": body}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_template_is_not_placed(kind: str) -> None:
    patch = decision_on(workload("2 + 20%", kind), Phase.MUTATE, RUNNING, patch_templates=True).patch
    assert [operation.path for operation in patch if operation.policy == "spot-placement"] == []


def on_demand(view: ClusterView) -> tuple[Term, ...]:
    """Return the constraints of a Pod that the controller assigns to on-demand nodes."""
    made = {**workload("1", "ReplicaSet")["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    patch = decided(review(made), Phase.MUTATE, view, assigned="on-demand").patch
    spec = apply_all(patch, made)["spec"]
    assert "tolerations" not in spec
    return terms_of(decode_pod(msgspec.json.encode({"spec": spec})).spec)


@pytest.mark.parametrize(
    ("provider", "paid", "later"),
    [
        ("cks", {}, [{}]),
        (
            "gke",
            {},
            [
                {"cloud.google.com/gke-spot": "true"},
                {"cloud.google.com/gke-preemptible": "true"},
            ],
        ),
        ("eks", {"eks.amazonaws.com/capacityType": "ON_DEMAND"}, [{"eks.amazonaws.com/capacityType": "SPOT"}]),
        (
            "karpenter",
            {"karpenter.sh/capacity-type": "on-demand"},
            [
                {"karpenter.sh/capacity-type": "spot"},
            ],
        ),
        ("aks", {}, [{"kubernetes.azure.com/scalesetpriority": "spot"}, {"kubernetes.azure.com/priority": "spot"}]),
    ],
)
def test_an_on_demand_pod_cannot_run_in_a_spot_pool_that_is_created_later(
    provider: str, paid: dict[str, str], later: list[dict[str, str]]
) -> None:
    facts = BUNDLE.providers[provider]
    pools = (
        other_pool(facts, "paid", capacity=CapacityType.ON_DEMAND, labels=paid),
        other_pool(facts, "other", capacity=CapacityType.ON_DEMAND, labels=paid),
    )
    terms = on_demand(view_of(*pools, shown=(provider,)))
    name = facts.pool_name_label
    for pool in ("paid", "other"):
        assert admits(terms, {name: pool, **paid}, absent=facts.marks) is Tristate.YES
    for labels in later:
        assert admits(terms, {name: "new", **labels}, absent=facts.marks) is Tristate.NO


def test_the_assignment_label_is_removed_from_a_users_pod_and_kept_on_a_pod_of_a_workload() -> None:
    label = {"spotgate.dev/assigned": "on-demand"}
    bare: JSON = {"metadata": {"labels": {"app": "x", **label}}, "spec": {"containers": [{"name": "main"}]}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    owned = {**bare, "metadata": {**bare["metadata"], "ownerReferences": [owner]}}
    for manifest, labels in ((bare, {"app": "x"}), (owned, {"app": "x", **label})):
        patch = decided(review(manifest), Phase.MUTATE, RUNNING).patch
        assert apply_all(patch, deepcopy(manifest))["metadata"]["labels"] == labels
