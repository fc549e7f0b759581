"""The notice of a reclaim on a Node: which signals count, when they began, and that no notice promises too much time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BUNDLE
from webhook.capacity.providers.signals import Notice, SignalNode, notice_of, parse_time
from webhook.kube.notice import RECLAIM_AT

JSON = dict[str, Any]

NOW = datetime(2026, 11, 29, 1, 0, 0, tzinfo=UTC)
PREEMPTION = "qos.coreweave.cloud/pending-preemption"
SPOT_ITN = "aws-node-termination-handler/spot-itn"
IMPENDING = "cloud.google.com/impending-node-termination"
SPOT_PRICE = "node-problem-controller.cce.io/SpotPriceNodeReclaimNotification"


def at(seconds: float) -> str:
    """Return a time relative to `NOW`, as the API server writes it."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def labeled(key: str = PREEMPTION, value: str = "true", *since: float) -> JSON:
    """Return a Node with a label, and managers that own it since these times."""
    return {"metadata": {"labels": {key: value}, "managedFields": [owner(time, "labels", key) for time in since]}}


def owner(time: float, part: str, key: str) -> JSON:
    return {"time": at(time), "fieldsV1": {"f:metadata": {f"f:{part}": {".": {}, f"f:{key}": {}}}}}


def annotated(value: str, **labels: str) -> JSON:
    return {"metadata": {"annotations": {RECLAIM_AT: value}, "labels": labels}}


def tainted(key: str, **taint: Any) -> JSON:
    return {"metadata": {}, "spec": {"taints": [{"key": key, "effect": "NoSchedule", **taint}]}}


def condition(message: str, status: str = "True", since: float = -4) -> JSON:
    item = {"type": "PreemptionScheduled", "status": status, "message": message, "lastTransitionTime": at(since)}
    return {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}, item]}}


def read(node: JSON, now: datetime = NOW) -> Notice | None:
    return notice_of(msgspec.convert(node, SignalNode, strict=False), BUNDLE.providers.values(), now)


AKS = "Preempt Scheduled: Sun, 29 Nov 2026 01:00:21 GMT. For more information, see docs. EventId: 40B7BD88"

# The drain and the removal in seconds after NOW, whether they are estimated, and the margin.
NOTICES: dict[str, tuple[JSON, str, float, float, bool, int]] = {
    "CKS: the label's manager tells its time": (labeled(PREEMPTION, "true", -20), "cks", 100, 400, False, 30),
    "CKS: the earliest of two managers counts": (labeled(PREEMPTION, "true", -5, -60), "cks", 60, 360, False, 30),
    "CKS: without a manager, the drain is now": (labeled(), "cks", 0, 300, True, 30),
    "CKS: the clock of the API server is ahead": (labeled(PREEMPTION, "true", 30), "cks", 120, 420, False, 30),
    "AWS Node Termination Handler: the time of the taint": (tainted(SPOT_ITN, value="spot-itn-1", timeAdded=at(-8)), "eks", -8, 112, False, 15),
    "AWS Node Termination Handler: no time": (tainted(SPOT_ITN, value="spot-itn-1"), "eks", 0, 120, True, 15),
    "AKS: the message contains the removal": (condition(AKS), "aks", -9, 21, False, 5),
    "AKS: the message has no readable time": (condition("Preempt Scheduled: soon."), "aks", -4, 26, False, 5),
    "AKS: the preemption has started": (condition(AKS.replace("Scheduled", "Started"), since=-28), "aks", -28, 2, False, 5),
    "GKE: the taint": (tainted(IMPENDING, timeAdded=at(-3)), "gke", -3, 27, False, 0),
    "Huawei CCE: the taint can be two minutes late": (tainted(SPOT_PRICE, timeAdded=at(-2)), "huawei-cce", -2, 178, False, 15),
    "any handler, any provider": (annotated(at(95)), "", 95, 95, False, 30),
    "any handler, on CKS": (annotated(at(95), **{"compute.coreweave.com/node-pool": "a"}), "cks", 95, 95, False, 30),
    "any handler, in another time zone": (annotated("2026-11-29T03:01:00.9+02:00"), "", 60.9, 60, False, 30),
    "the earliest of several signals counts": ({**labeled(PREEMPTION, "true", -20), "spec": tainted(SPOT_ITN, timeAdded=at(-8))["spec"]}, "eks", -8, 112, False, 15),
}  # fmt: skip


@pytest.mark.parametrize("what", NOTICES)
def test_a_signal_tells_when_the_node_is_drained_and_removed(what: str) -> None:
    node, provider, drain, removal, estimated, margin = NOTICES[what]
    notice = read(node)
    assert notice is not None
    seconds = [(time - NOW).total_seconds() for time in (notice.drain, notice.removal)]
    assert (notice.provider, *seconds) == (provider, drain, removal)
    assert (notice.estimated, notice.margin) == (estimated, margin)


NONE = {
    "a Node without signals": {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": []}},
    "another value of the label": labeled(PREEMPTION, "false"),
    "an advisory is no reclaim": condition("SpotRebalanceRecommendation Advisory: Sun, 29 Nov 2026 01:00:21 GMT."),
    "the condition is no longer true": condition(AKS, status="False"),
    "Karpenter's taint can mean consolidation": tainted("karpenter.sh/disrupted"),
    "an empty annotation": annotated(""),
    "an annotation without a time": annotated("soon"),
    "an impossible time": annotated("2026-02-31T00:00:00Z"),
    "a time without a zone": annotated("2026-11-29T01:02:00"),
    "a removal that is more than a day ahead": annotated("2026-12-01T00:00:00Z"),
    "a Node that exists an hour after its removal": labeled(PREEMPTION, "true", -420 - 3600),
}


@pytest.mark.parametrize("what", NONE)
def test_other_nodes_have_no_notice(what: str) -> None:
    assert read(NONE[what]) is None


@given(since=st.integers(-500, 100), later=st.integers(0, 500))
def test_a_later_look_at_the_same_node_never_promises_more(since: int, later: int) -> None:
    node = labeled(PREEMPTION, "true", since)
    first, second = read(node), read(node, NOW + timedelta(seconds=later))
    assert first is not None
    assert second is not None
    assert first.removal <= NOW + timedelta(seconds=420)
    assert second.removal <= max(first.removal, NOW + timedelta(seconds=since + 420))


@given(st.text())
def test_any_text_is_a_time_or_none(text: str) -> None:
    assert parse_time(text) is None or parse_time(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_read_as_it_is_written(time: datetime) -> None:
    whole = time.replace(microsecond=0)
    assert parse_time(f"at {whole.isoformat()}.") == whole
