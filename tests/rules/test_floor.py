"""The on-demand floor: how many, which ordinals, and what the webhook makes of a Pod."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.objects import cks_pool, view_of
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, Floor, parse_floor
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.kube.autoscalers import Autoscaler
from webhook.model.patch import apply_all
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from webhook.model.decision import Decision

JSON = dict[str, Any]

NODE_POOL = "compute.coreweave.com/node-pool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GATE = [{"name": "spotgate.dev/on-demand-floor"}]
TOLERATION = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
OFF_SPOT = {"key": NODE_POOL, "operator": "NotIn", "values": ["cpu-spot"]}
ON_DEMAND = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [OFF_SPOT]}]}}}
AVOIDING = {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": {"matchExpressions": [OFF_SPOT]}}]}}
VIEW = view_of(
    cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",)), cks_pool("cpu", spot=False, gpu=False)
)
RUNNING = replace(VIEW, floor_controller=True)
INDEX = load_bundle().index


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
def test_the_ordinals_that_stay_on_demand_are_as_many_as_the_floor_needs(floor: Floor, count: int) -> None:
    assert sum(map(floor.keeps, range(count))) == floor.need(count)


def review(thing: JSON) -> JSON:
    group, _, version = thing["apiVersion"].rpartition("/")
    kind = thing["kind"]
    request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
        "name": thing["metadata"].get("name", ""),
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "jane"},
        "object": thing,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def decided(thing: JSON, phase: Phase, view: Any, **how: Any) -> Decision:
    context = Context(phase=phase, now=datetime(2026, 11, 21, tzinfo=UTC), view=view, **how)
    return decide(decode_review(json.dumps(review(thing)).encode()), INDEX, context)


def found(thing: JSON, view: Any = VIEW) -> list[str]:
    """Return the ids of SpotPlacement's findings."""
    findings = decided(thing, Phase.VALIDATE, view).findings
    return [finding.id.partition("/")[2] for finding in findings if finding.policy == "spot-placement"]


def pod(
    floor: str, owner: str = "ReplicaSet", *, capacity: str = "spot", labels: JSON | None = None, **spec: Any
) -> JSON:
    metadata: JSON = {"name": "web-0", "namespace": "shop", "annotations": {FLOOR_ANNOTATION: floor}}
    metadata["labels"] = {"spotgate.dev/capacity": capacity, **(labels or {})}
    if owner:
        api_version = "batch/v1" if owner == "Job" else "apps/v1"
        metadata["ownerReferences"] = [
            {"apiVersion": api_version, "kind": owner, "name": "web", "uid": "1", "controller": True}
        ]
    container = {"name": "main", "image": "registry.example/web:1", "ports": [{"containerPort": 80}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def ordinal(index: int, floor: str = "1", **more: Any) -> JSON:
    return pod(floor, "StatefulSet", labels={"apps.kubernetes.io/pod-index": str(index)}, **more)


def placed(thing: JSON, view: Any = VIEW) -> tuple[JSON, list[str]]:
    """Return what the webhook adds about where the Pod runs, and what validation finds then. Mutation is idempotent."""
    thing = json.loads(json.dumps(thing))
    before = json.loads(json.dumps(thing["spec"]))
    apply_all(decided(thing, Phase.MUTATE, view).patch, thing)
    assert decided(thing, Phase.MUTATE, view).patch == ()
    kept = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    added = {key: thing["spec"][key] for key in kept if thing["spec"].get(key) != before.get(key)}
    return added, found(thing, view)


STARTING = replace(VIEW, ordinal_starts={"shop/web": 5})
ON_SPOT = {"nodeSelector": {NODE_POOL: "cpu-spot"}, "tolerations": [TOLERATION]}


@pytest.mark.parametrize("capacity", ["spot", "spot-preferred"])
def test_a_low_ordinal_keeps_off_spot(capacity: str) -> None:
    assert placed(ordinal(5, capacity=capacity), STARTING) == ({"affinity": ON_DEMAND}, [])


def test_a_high_ordinal_requires_or_prefers_spot_as_its_label_says() -> None:
    assert placed(ordinal(6), STARTING) == (ON_SPOT, [])
    added, findings = placed(ordinal(6, capacity="spot-preferred"), STARTING)
    assert (PREFERRED in added["affinity"]["nodeAffinity"], findings) == (True, [])


def test_the_requirement_goes_into_every_term_of_the_pods_own_affinity() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    own = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": zones}}}
    added, _ = placed(ordinal(5, affinity=own), STARTING)
    terms = added["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchExpressions"][1] for term in terms] == [OFF_SPOT, OFF_SPOT]


@pytest.mark.parametrize("view", [VIEW, replace(VIEW, ordinal_starts={"shop/other": 0})])
def test_without_the_first_ordinal_nothing_is_decided(view: Any) -> None:
    added = {"affinity": AVOIDING, "tolerations": [TOLERATION]}
    assert placed(ordinal(0), view) == (added, ["floor-undecided"])


def test_all_pods_of_a_group_go_by_the_index_of_the_group() -> None:
    for index, expected in ((0, {"affinity": ON_DEMAND}), (1, ON_SPOT)):
        labels = {"leaderworkerset.sigs.k8s.io/group-index": str(index), "apps.kubernetes.io/pod-index": "7"}
        assert placed(pod("1", "StatefulSet", labels=labels))[0] == expected


def test_a_pod_of_a_replicaset_waits_for_the_controller() -> None:
    assert placed(pod("1"), RUNNING) == ({"tolerations": [TOLERATION], "schedulingGates": GATE}, [])


def test_without_a_controller_it_prefers_on_demand_and_loses_a_gate_that_it_came_with() -> None:
    expected = {"affinity": AVOIDING, "tolerations": [TOLERATION]}
    assert placed(pod("1"), VIEW) == (expected, ["floor-not-kept"])
    assert placed(pod("1", schedulingGates=GATE), VIEW) == ({**expected, "schedulingGates": []}, ["floor-not-kept"])


def test_what_was_gated_is_valid_when_the_controller_has_died_since() -> None:
    assert found(pod("1", schedulingGates=GATE, tolerations=[TOLERATION]), VIEW) == []


@pytest.mark.parametrize(
    "obstacle",
    [
        {"schedulerName": "volcano"},
        {"schedulingGates": [{"name": "example.com/quota"}]},
        {"schedulingGroup": {"podGroupName": "a"}},
        {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
    ],
    ids=lambda obstacle: next(iter(obstacle)),
)
def test_no_gate_where_something_else_starts_or_places_the_pod(obstacle: JSON) -> None:
    added, findings = placed(pod("1", **obstacle), RUNNING)
    assert ("schedulingGates" in added, findings) == (False, ["floor-not-kept"])


def test_a_bound_pod_is_left_alone() -> None:
    assert placed(pod("1", nodeName="cpu-0"), RUNNING)[0] == {}


@pytest.mark.parametrize("owner", ["", "Job", "DaemonSet"])
def test_a_floor_on_other_pods_has_no_effect(owner: str) -> None:
    added, findings = placed(pod("1", owner))
    assert added == ({} if owner == "DaemonSet" else ON_SPOT)
    assert "floor-no-effect" in findings


def test_a_floor_on_a_pod_that_does_not_ask_for_spot_has_no_effect() -> None:
    assert placed(pod("1", capacity="on-demand"), RUNNING) == ({}, ["floor-no-effect"])


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_text_that_is_no_floor_is_denied_with_the_three_forms(kind: str) -> None:
    denied = next(each for each in decided(workload("half", kind), Phase.VALIDATE, VIEW).findings if "floor" in each.id)
    assert (denied.id, str(denied.outcome)) == ("spot-placement/floor-invalid", "deny")
    assert denied.fix == 'write "2", "20%", or "2 + 20%"'
    assert denied.field == f'spec.template.metadata.annotations["{FLOOR_ANNOTATION}"]'


def workload(floor: str, kind: str = "Deployment", replicas: int = 6, **spec: Any) -> JSON:
    template = pod(floor, "", **spec)
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations")}
    body = {"replicas": replicas, "template": {"metadata": metadata, "spec": template["spec"]}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": body}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_template_shows_the_split_and_gets_only_tolerations(kind: str) -> None:
    thing = workload("2 + 20%", kind)
    split = next(each for each in decided(thing, Phase.VALIDATE, VIEW).findings if each.id.endswith("floor-split"))
    assert (split.reason, str(split.outcome)) == ("6 replicas: 3 on-demand, 3 spot", "audit")
    patch = decided(thing, Phase.MUTATE, RUNNING, patch_templates=True).patch
    placing = [each.path for each in patch if each.policy == "spot-placement"]
    assert placing == ["/spec/template/spec/tolerations"]


def test_a_floor_that_no_pool_can_hold_is_found() -> None:
    spot = view_of(cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",)))
    assert "floor-no-pool" in found(workload("1"), spot)
    assert "floor-no-pool" not in found(workload("1"))


@pytest.mark.parametrize(("minimum", "expected"), [(1, {"floor-autoscaler"}), (2, set())])
def test_an_autoscaler_that_may_go_below_the_base_is_found(minimum: int, expected: set[str]) -> None:
    scaler = Autoscaler(
        kind="HorizontalPodAutoscaler", name="web", target=("Deployment", "web"), field="minReplicas", minimum=minimum
    )
    findings = found(workload("2"), replace(VIEW, autoscalers={"shop": (scaler,)}))
    assert set(findings) & {"floor-autoscaler"} == expected


def test_a_selector_for_spot_contradicts_the_floor() -> None:
    assert "floor-no-effect" in found(workload("1", nodeSelector={NODE_POOL: "cpu-spot"}))
