"""The garbage collector deletes an object whose owners are gone: giving the last fallback an owner is deleting it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.test_on_demand_fallback import CPU_POOL, ON_DEMAND, SPOT, Json, changed, deleting, judge, pool
from webhook.model.decision import Outcome


def owned(value: Json, *uids: str) -> Json:
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid} for uid in uids]
    return {**value, "metadata": {**value["metadata"], "ownerReferences": owners}}


CLUSTER: list[Any] = [SPOT, ON_DEMAND, CPU_POOL]


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (owned(ON_DEMAND, "a"), ON_DEMAND),
        (owned(ON_DEMAND, "b"), owned(ON_DEMAND, "a")),
        (owned(changed(ON_DEMAND, targetNodes=3), "a"), ON_DEMAND),
    ],
)
def test_the_last_fallback_gets_no_owner(new: Json, old: Json) -> None:
    (said,) = judge(new, old, CLUSTER)
    assert said.outcome is Outcome.DENY
    assert said.reason == "NodePool h100-od is the last on-demand fallback of GPU spot pool NodePool h100-spot"
    assert said.field == "metadata.ownerReferences"
    assert said.detail.startswith(
        "Left without: NodePool h100-spot. The garbage collector deletes an object when its owners are gone."
    )
    assert said.fix.startswith("leave it without an owner, or ")


@pytest.mark.parametrize(
    ("new", "old", "cluster"),
    [
        (owned(ON_DEMAND, "a"), None, CLUSTER),
        (owned(ON_DEMAND, "a", "b"), owned(ON_DEMAND, "a"), CLUSTER),
        (ON_DEMAND, owned(ON_DEMAND, "a"), CLUSTER),
        (owned(ON_DEMAND, "a"), owned(ON_DEMAND, "a"), CLUSTER),
        (owned(ON_DEMAND, "a"), ON_DEMAND, [*CLUSTER, pool("another")]),
        (owned(CPU_POOL, "a"), CPU_POOL, CLUSTER),
        (owned(SPOT, "a"), SPOT, CLUSTER),
        (owned(deleting(ON_DEMAND), "a"), deleting(ON_DEMAND), CLUSTER),
    ],
)
def test_where_that_makes_no_deletion_more_likely_or_worse_nothing_is_said(
    new: Json, old: Json | None, cluster: list[Any]
) -> None:
    assert judge(new, old, cluster) == []


def test_a_fallback_that_a_finalizer_holds_is_none_any_more() -> None:
    """Background, Foreground and Orphan alike: the deletion itself is judged, and its finalizers may be removed."""
    held = deleting({**ON_DEMAND, "metadata": {**ON_DEMAND["metadata"], "finalizers": ["example.com/hold"]}})
    assert [each.outcome for each in judge(None, pool("another"), [SPOT, held, pool("another")])] == [Outcome.DENY]
    assert judge(deleting(ON_DEMAND), held, [SPOT, held]) == []


def test_an_unknown_cluster_denies_it_as_it_denies_the_deletion() -> None:
    (said,) = judge(owned(ON_DEMAND, "a"), ON_DEMAND, None)
    assert said.unknown
