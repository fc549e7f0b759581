"""The ledger assigns a Pod to spot only if enough others are on demand, even if answers fail or are late."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import KARPENTER, cks_pool, other_pool, view_of
from webhook.capacity.placement.floor import parse_floor
from webhook.capacity.providers.pool import CapacityType
from webhook.controller.floor import Cluster
from webhook.controller.ledger import ON_DEMAND, RELEASE, SPOT, Assignment, Ledger
from webhook.controller.pods import FloorPod
from webhook.engine.bundle import load_bundle
from webhook.rules.context import NOTHING_KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api

OWNER = "rs"
ON_DEMAND_NODE, SPOT_NODE = "od", "spot"


def gated(name: str, floor: str = "1", *, owner: str = OWNER) -> FloorPod:
    return FloorPod(
        namespace="shop",
        name=name,
        uid=name,
        created=datetime(2026, 11, 26, tzinfo=UTC),
        owner=owner,
        floor=parse_floor(floor),
        gated=True,
        assigned="",
        node="",
        alive=True,
    )


def assigned(name: str, capacity: str, **more: object) -> FloorPod:
    return replace(gated(name), gated=False, assigned=capacity, **more)


def ledger_of(*pods: FloorPod) -> Ledger:
    ledger = Ledger(lambda node: node == ON_DEMAND_NODE)
    for pod in pods:
        ledger.replace(None, pod)
    return ledger


def due(ledger: Ledger) -> list[tuple[str, str]]:
    return [(assignment.pod.name, assignment.capacity) for assignment in ledger.due(OWNER)]


def answer(ledger: Ledger, assignments: Iterable[Assignment]) -> None:
    """Send assignments that the API server accepts."""
    for assignment in assignments:
        assert ledger.send(assignment)
        ledger.confirm(assignment.pod)


def test_spot_assignments_wait_until_on_demand_assignments_are_confirmed() -> None:
    ledger = ledger_of(*(gated(name, "2") for name in "abcd"))
    assert due(ledger) == [("a", ON_DEMAND), ("b", ON_DEMAND)]
    first, second = ledger.due(OWNER)
    for assignment in (first, second):
        ledger.send(assignment)
    assert due(ledger) == []
    ledger.confirm(first.pod)
    assert due(ledger) == []
    ledger.confirm(second.pod)
    assert due(ledger) == [("c", SPOT), ("d", SPOT)]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (assigned("a", ON_DEMAND), SPOT),
        (assigned("a", SPOT), ON_DEMAND),
        (assigned("a", ON_DEMAND, node=SPOT_NODE), ON_DEMAND),
        (assigned("a", SPOT, node=ON_DEMAND_NODE), SPOT),
        (assigned("a", "", node=ON_DEMAND_NODE), SPOT),
        (assigned("a", ON_DEMAND, node="lost"), ON_DEMAND),
        (assigned("a", ON_DEMAND, alive=False), ON_DEMAND),
        (assigned("a", ""), ON_DEMAND),
        (replace(assigned("a", ON_DEMAND), owner="other"), ON_DEMAND),
    ],
    ids=[
        "assigned to on-demand",
        "assigned to spot",
        "bound to a spot node, despite its label",
        "bound to an on-demand node, despite its label",
        "bound without a label",
        "on a lost node",
        "terminating",
        "neither bound nor assigned",
        "of another ReplicaSet",
    ],
)
def test_a_pod_counts_as_on_demand_by_its_node_before_its_label(there: FloorPod, expected: str) -> None:
    assert due(ledger_of(there, gated("b", "1"))) == [("b", expected)]


def test_a_pod_without_a_floor_is_released() -> None:
    assert due(ledger_of(replace(gated("a"), floor=None))) == [("a", RELEASE)]


def test_a_rejected_pod_is_released_and_does_not_count() -> None:
    ledger = ledger_of(gated("a"), gated("b"))
    (first,) = ledger.due(OWNER)
    ledger.send(first)
    ledger.refuse(first.pod)
    assert due(ledger) == [("a", RELEASE), ("b", ON_DEMAND)]


def test_an_unanswered_assignment_counts_until_it_is_sent_again() -> None:
    ledger = ledger_of(gated("a", "50%"), gated("b", "50%"))
    answer(ledger, ledger.due(OWNER))
    (spot,) = ledger.due(OWNER)
    ledger.send(spot)
    ledger.reopen(spot.pod)
    ledger.replace(None, gated("c", "50%"))
    assert due(ledger) == [("c", ON_DEMAND)]  # because one of two may already be on spot
    answer(ledger, ledger.due(OWNER))
    assert due(ledger) == [("b", SPOT)]


def test_a_spot_assignment_is_not_sent_if_an_on_demand_pod_is_deleted_while_it_waits_for_its_turn() -> None:
    kept, waiting = assigned("a", ON_DEMAND), gated("b")
    ledger = ledger_of(kept, waiting)
    (assignment,) = ledger.due(OWNER)
    ledger.replace(kept, None)
    assert not ledger.send(assignment)
    assert due(ledger) == [("b", ON_DEMAND)]


def test_a_pod_that_always_changes_is_released_alone() -> None:
    ledger = ledger_of(gated("a"), gated("b"))
    for _ in range(5):
        (assignment,) = ledger.due(OWNER)
        assert assignment == Assignment(gated("a"), ON_DEMAND)
        ledger.send(assignment)
        ledger.reopen(assignment.pod, conflict=True)
    assert due(ledger) == [("a", RELEASE), ("b", ON_DEMAND)]


def test_a_new_leader_counts_only_what_the_watch_shows() -> None:
    ledger = ledger_of(gated("a"), gated("b"))
    answer(ledger, ledger.due(OWNER))
    ledger.reset()
    assert due(ledger) == [("a", ON_DEMAND)]


def test_a_pod_deleted_in_the_meantime_is_not_sent() -> None:
    pod = gated("a")
    ledger = ledger_of(pod)
    (first,) = ledger.due(OWNER)
    ledger.replace(pod, None)
    assert not ledger.send(first)
    assert (due(ledger), list(ledger.owners), ledger.oldest()) == ([], [], 0.0)


def test_the_tally_counts_every_living_pod_once() -> None:
    ledger = ledger_of(
        gated("a"), assigned("b", ON_DEMAND), assigned("c", SPOT, node=SPOT_NODE), assigned("d", SPOT, alive=False)
    )
    assert ledger.tally() == {ON_DEMAND: 1, SPOT: 1, "gated": 1}


floors = st.builds(lambda base, percent: f"{base} + {percent}%", st.integers(0, 4), st.integers(0, 100))
events = st.lists(
    st.tuples(st.sampled_from(["create", "delete", "assign", "lose", "unanswered"]), st.integers(0, 99)), max_size=60
)


class World:
    """A ReplicaSet, and a ledger that observes each change immediately."""

    def __init__(self, floor: str) -> None:
        self.floor = floor
        self.pods: dict[str, FloorPod] = {}
        self.ledger = Ledger(lambda node: node == ON_DEMAND_NODE)

    def show(self, name: str, after: FloorPod | None) -> None:
        self.ledger.replace(self.pods.pop(name, None), after)
        if after is not None:
            self.pods[name] = after

    def pick(self, number: int) -> FloorPod | None:
        names = sorted(self.pods)
        return self.pods[names[number % len(names)]] if names else None

    def assign(self, *, answered: bool, accepted: bool) -> None:
        """Send due assignments. The API server may accept one, and its answer may still get lost."""
        for assignment in self.ledger.due(OWNER):
            settled = [pod for pod in self.pods.values() if pod.assigned]
            kept = sum(pod.assigned == ON_DEMAND and pod.node != "lost" for pod in settled)
            floor = parse_floor(self.floor)
            assert floor is not None
            assert assignment.capacity != SPOT or kept >= floor.need(len(settled) + 1)
            self.ledger.send(assignment)
            (self.ledger.confirm if answered else self.ledger.reopen)(assignment.pod)
            if accepted:
                self.show(assignment.pod.name, replace(assignment.pod, gated=False, assigned=assignment.capacity))


@given(floors, events)
def test_no_sequence_of_events_assigns_a_pod_to_spot_below_the_floor(
    floor: str, history: list[tuple[str, int]]
) -> None:
    world = World(floor)
    for number, (event, chosen) in enumerate(history):
        pod = world.pick(chosen)
        match event:
            case "create":
                world.show(f"p{number}", gated(f"p{number}", floor))
            case "delete" if pod is not None:
                world.show(pod.name, None)
            case "lose" if pod is not None and pod.assigned:
                world.show(pod.name, replace(pod, node="lost"))
            case "assign":
                world.assign(answered=True, accepted=True)
            case "unanswered":
                world.assign(answered=False, accepted=chosen % 2 == 0)


def test_an_unanswered_spot_assignment_becomes_on_demand_if_on_demand_pods_are_gone() -> None:
    kept, waiting = assigned("a", ON_DEMAND), gated("b")
    ledger = ledger_of(kept, waiting)
    (assignment,) = ledger.due(OWNER)
    assert assignment.capacity == SPOT
    ledger.send(assignment)
    ledger.reopen(assignment.pod)
    assert due(ledger) == [("b", SPOT)]
    ledger.replace(kept, None)
    assert due(ledger) == [("b", ON_DEMAND)]


def test_an_orphaned_pod_no_longer_counts_for_its_owner() -> None:
    before = gated("a")
    ledger = ledger_of(before)
    ledger.send(*ledger.due(OWNER))
    ledger.reopen(before)
    ledger.replace(before, replace(before, owner="", floor=None))
    assert due(ledger) == []
    assert list(ledger.owners) == [""]
    assert sum(ledger.tally().values()) == 1


# Capacity of the cluster's nodes

POOL = "compute.coreweave.com/node-pool"
CPU = cks_pool("cpu", spot=False, gpu=False)
POOLS = view_of(cks_pool("cpu-spot", gpu=False), CPU)
SPOT_POOL_DELETED = view_of(CPU)
KARPENTER_POOL = other_pool(KARPENTER, "any", capacity=CapacityType.BOTH)
"""Its spot nodes have a label."""


class _State:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def view(self) -> ClusterView:
        return self._view


@pytest.mark.parametrize(
    ("view", "node", "expected"),
    [
        (POOLS, "of-cpu", True),
        (POOLS, "of-spot", False),
        (POOLS, "of-unknown", False),
        (POOLS, "without-labels", False),
        (POOLS, "gone", False),
        (SPOT_POOL_DELETED, "of-cpu", True),
        (SPOT_POOL_DELETED, "of-spot", False),
        (view_of(shown=("cks",)), "of-spot", False),
        (view_of(KARPENTER_POOL), "of-karpenter", True),
        (view_of(KARPENTER_POOL), "spot-of-karpenter", False),
        (view_of(KARPENTER_POOL), "without-labels", True),
        (view_of(KARPENTER_POOL, CPU), "spot-of-karpenter", False),
        (view_of(KARPENTER_POOL, CPU), "of-spot", False),
        (NOTHING_KNOWN, "of-cpu", False),
        (NOTHING_KNOWN, "of-spot", False),
    ],
)
def test_only_a_node_that_is_known_to_be_on_demand_counts(view: ClusterView, node: str, expected: bool) -> None:  # noqa: FBT001
    nodes = {
        ("", "of-cpu"): {POOL: "cpu"},
        ("", "of-spot"): {POOL: "cpu-spot"},
        ("", "of-unknown"): {POOL: "deleted"},
        ("", "without-labels"): {},
        ("", "of-karpenter"): {"karpenter.sh/nodepool": "any", "karpenter.sh/capacity-type": "on-demand"},
        ("", "spot-of-karpenter"): {"karpenter.sh/nodepool": "any", "karpenter.sh/capacity-type": "spot"},
    }
    cluster = Cluster(cast("Api", None), load_bundle(), nodes)
    cluster.state = _State(view)  # type: ignore[assignment]
    assert cluster.is_on_demand(node) is expected
