"""An admitted deletion counts at once, until the cluster shows it or a short time has passed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import BUNDLE
from tests.builders import node_pool as pool
from webhook.capacity.view import ClusterView
from webhook.cluster.pending_changes import REMEMBERED_SECONDS, PendingChanges
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request

PROVIDERS = BUNDLE.providers
(READER,) = PROVIDERS["cks"].readers
JSON = dict[str, Any]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def view(*pools: JSON) -> ClusterView:
    return ClusterView(pools=tuple(map(READER.read, pools)))


def raw(value: JSON | None) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def request(new: JSON | None, old: JSON | None, *, name: str = "a", sub_resource: str = "") -> Request:
    return Request(
        uid="u",
        operation="CREATE" if old is None else "DELETE" if new is None else "UPDATE",
        kind=GroupVersionKind("compute.coreweave.com", "v1alpha1", "NodePool"),
        resource=GroupVersionResource("compute.coreweave.com", "v1alpha1", "nodepools"),
        sub_resource=sub_resource,
        name=name,
        object=raw(new),
        old_object=raw(old),
    )


A, B = pool("a"), pool("b")
BOTH = view(A, B)


def usable_pools(seen: ClusterView) -> list[str]:
    return [node_pool.name for node_pool in seen.pools or () if not node_pool.unusable and not node_pool.spot]


def after(*requests: Request, clock: Clock | None = None) -> PendingChanges:
    pending = PendingChanges(clock or Clock())
    for admitted in requests:
        pending.note(admitted, BOTH, PROVIDERS)
    return pending


SCALE: JSON = {"kind": "Scale", "metadata": {"name": "a"}, "spec": {}}


@pytest.mark.parametrize(
    "taking",
    [
        request(None, A),
        request(pool("a", targetNodes=0), A),
        request(pool("a", computeClass="spot"), A),
        request(pool("a", instanceType="turin-gp"), A),
        request(SCALE, SCALE, sub_resource="scale"),
    ],
)
def test_removing_a_fallback_counts_at_once(taking: Request) -> None:
    assert usable_pools(after(taking).applied(BOTH)) == ["b"]


@pytest.mark.parametrize(
    "harmless",
    [
        request(pool("a", targetNodes=3), A),
        request(A, A, sub_resource="status"),
        request({**SCALE, "spec": {"replicas": 2}}, SCALE, sub_resource="scale"),
        request(pool("c"), None, name="c"),
    ],
)
def test_other_requests_change_nothing(harmless: Request) -> None:
    assert after(harmless).applied(BOTH) is BOTH


def test_a_new_spot_pool_needs_its_fallback_at_once() -> None:
    seen = after(request(pool("s", computeClass="spot"), None, name="s")).applied(BOTH)
    assert [node_pool.name for node_pool in seen.pools or () if node_pool.spot] == ["s"]


def test_an_object_denied_elsewhere_reappears_after_a_while() -> None:
    clock = Clock()
    pending = after(request(None, A), clock=clock)
    clock.now = REMEMBERED_SECONDS
    assert usable_pools(pending.applied(BOTH)) == ["b"]
    clock.now = REMEMBERED_SECONDS + 0.1
    assert pending.applied(BOTH) is BOTH


def test_a_deleted_pool_may_be_recreated() -> None:
    pending = after(request(None, A))
    gone = view(B)
    assert pending.applied(gone) is gone
    assert pending.applied(BOTH) is BOTH


def test_an_admitted_pool_counts_again() -> None:
    assert usable_pools(after(request(None, A), request(A, None)).applied(BOTH)) == ["a", "b"]
    back = {**SCALE, "spec": {"replicas": 1}}
    emptied, filled = (request(scale, SCALE, sub_resource="scale") for scale in (SCALE, back))
    assert usable_pools(after(emptied, filled).applied(BOTH)) == ["a", "b"]


def test_an_unreadable_object_removes_nothing() -> None:
    assert after(request([], A)).applied(BOTH) is BOTH  # type: ignore[arg-type]


def test_unknown_pools_stay_unknown() -> None:
    unknown = ClusterView()
    assert after(request(None, A)).applied(unknown) is unknown


def test_the_memory_is_bounded_by_the_size_of_a_cluster() -> None:
    pending = PendingChanges(Clock())
    for number in range(1_100):
        spot = pool(f"s{number}", computeClass="spot")
        pending.note(request(spot, None, name=f"s{number}"), BOTH, PROVIDERS)
    assert len(pending.applied(BOTH).pools or ()) == 1_002
