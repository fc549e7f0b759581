"""The steps of a reclaim notice: what a leader does next for each Pod, and that it reads only Pods that ask for notices."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from webhook.capacity.providers.signals import Notice
from webhook.controller.notice.objects import PODS_TO_NOTIFY, NotifiedNode, NotifiedPod, read_pod
from webhook.controller.notice.steps import Clear, Evict, Inform, NoticeStep, lasting, next_step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from webhook.cluster.api import Api
    from webhook.cluster.source import ListedMetadata

JSON = dict[str, Any]

NOW = datetime(2026, 11, 29, 1, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


# CoreWeave's, 20 s after it began.
NOTICE = Notice(provider="cks", signal="label a", since=at(-20), drain=at(100), removal=at(400), margin=30)
ESTIMATE = replace(NOTICE, estimated=True)
POD = NotifiedPod(
    namespace="team",
    name="web",
    uid="1",
    version="7",
    created=at(-600),
    node="a",
    told=None,
    annotated=False,
    evict=False,
    grace=60,
    alive=True,
)
TOLD = replace(POD, told=at(400), annotated=True)
EVICT = replace(TOLD, evict=True)

STEPS: dict[str, tuple[NotifiedPod, Notice | None, float, bool, NoticeStep | None]] = {
    "a Pod without the time is informed": (POD, NOTICE, 0, False, Inform(at(400))),
    "also if it asks to be evicted": (replace(POD, evict=True), NOTICE, 0, False, Inform(at(400))),
    "and after the removal": (POD, NOTICE, 500, False, Inform(at(400))),
    "an annotation without a time is replaced": (replace(POD, annotated=True), NOTICE, 0, False, Inform(at(400))),
    "an informed Pod is left alone": (TOLD, NOTICE, 0, False, None),
    "a later time is corrected": (replace(TOLD, told=at(401)), NOTICE, 0, False, Inform(at(400))),
    "an earlier time stays": (replace(TOLD, told=at(300)), NOTICE, 0, False, None),
    "estimates differ between replicas": (replace(TOLD, told=at(404)), ESTIMATE, 0, False, None),
    "an estimate corrects a time that is much later": (replace(TOLD, told=at(406)), ESTIMATE, 0, False, Inform(at(400))),
    "without a notice, the time is removed": (TOLD, None, 0, False, Clear()),
    "without a notice and a time, nothing happens": (POD, None, 0, False, None),
    "a Pod is evicted with the time left": (EVICT, NOTICE, 0, False, Evict(370)),
    "the time left is rounded down": (EVICT, NOTICE, 0.1, False, Evict(369)),
    "a margin is at least as long as a request": (EVICT, replace(NOTICE, margin=0), 0, False, Evict(395)),
    "a Pod that has as much time isn't evicted": (replace(EVICT, grace=370), NOTICE, 0, False, None),
    "a Pod that was created after the notice is only informed": (replace(POD, created=at(1)), NOTICE, 2, False, Inform(at(400))),
    "and never evicted, because its replacement may return, too": (replace(EVICT, created=at(1)), NOTICE, 2, False, None),
    "nor in the second of the notice, as a replacement can be": (replace(EVICT, created=at(-20)), NOTICE, 2, False, None),
    "a terminating Pod is left alone": (replace(EVICT, alive=False), NOTICE, 0, False, None),
    "a terminating Pod isn't informed": (replace(POD, alive=False), NOTICE, 0, False, None),
    "a terminating Pod keeps its time": (replace(TOLD, alive=False), None, 0, False, None),
    "a refused Eviction is repeated until the drain": (EVICT, NOTICE, 99, True, Evict(271)),
    "and not later": (EVICT, NOTICE, 100, True, None),
    "a drain that has begun permits one attempt": (EVICT, NOTICE, 100, False, Evict(270)),
    "after the removal, no Pod is evicted": (replace(EVICT, grace=0), NOTICE, 500, False, None),
}  # fmt: skip


@pytest.mark.parametrize("what", STEPS)
def test_the_next_step(what: str) -> None:
    pod, notice, seconds, refused, expected = STEPS[what]
    assert next_step(pod, notice, at(seconds), refused=refused) == expected


@given(
    seconds=st.floats(-1000, 2000),
    removal=st.integers(0, 1000),
    drain=st.integers(0, 1000),
    margin=st.integers(0, 100),
    grace=st.integers(0, 1000),
    told=st.none() | st.integers(-1000, 2000),
    refused=st.booleans(),
)
def test_no_step_promises_time_after_the_removal(
    seconds: float,
    removal: int,
    drain: int,
    margin: int,
    grace: int,
    told: int | None,
    refused: bool,  # noqa: FBT001
) -> None:
    notice = replace(NOTICE, removal=at(removal), drain=at(min(drain, removal)), margin=margin)
    pod = replace(EVICT, told=None if told is None else at(told), grace=grace)
    step = next_step(pod, notice, at(seconds), refused=refused)
    if isinstance(step, Evict):
        assert seconds + step.grace <= removal - margin
        assert step.grace > grace
    else:
        assert step in {None, Inform(at(removal))}
        assert step is not None or (told is not None and told <= removal)


def test_a_second_look_at_a_signal_promises_no_more_time() -> None:
    first = NotifiedNode("a", "1", NOTICE)
    later, sooner = replace(NOTICE, removal=at(430)), replace(NOTICE, removal=at(390))
    assert lasting(first, replace(first, notice=later)).notice == NOTICE
    assert lasting(first, replace(first, notice=sooner)).notice == sooner
    other = replace(later, signal="taint b")
    assert lasting(first, replace(first, notice=other)).notice == other
    assert lasting(first, replace(first, notice=later, uid="2")).notice == later


def read(changes: JSON, **metadata: Any) -> NotifiedPod:
    labels, annotations = {"spotgate.dev/on-reclaim": "evict"}, {"spotgate.dev/reclaim-at": "2026-11-29T01:06:40Z"}
    created = {"creationTimestamp": "2026-11-29T00:50:00Z"}
    common = {"name": "web", "namespace": "team", "uid": "1", "resourceVersion": "7", **created}
    pod = {"metadata": {**common, "labels": labels, "annotations": annotations, **metadata}, "spec": {"nodeName": "a"}}
    return read_pod(cast("ListedMetadata", None), msgspec.Raw(json.dumps({**pod, **changes}).encode()))


def owned(kind: str, api_version: str) -> list[JSON]:
    return [{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "2", "controller": True}]


def test_a_pod_is_read_from_its_json() -> None:
    assert read({}) == replace(EVICT, grace=30)
    assert read({"spec": {"terminationGracePeriodSeconds": 0}}) == replace(EVICT, grace=0, node="")
    assert read({"status": {"phase": "Succeeded"}}).alive is False
    assert read({}, deletionTimestamp="2026-11-29T01:00:00Z").alive is False
    assert read({}, annotations=None) == replace(EVICT, grace=30, told=None, annotated=False)
    assert read({}, labels={"spotgate.dev/on-reclaim": "inform"}).evict is False
    for owner in (owned("DaemonSet", "apps/v1"), owned("Node", "v1")):
        assert read({}, ownerReferences=owner).evict is False
    assert read({}, ownerReferences=owned("ReplicaSet", "apps/v1")).evict is True


class Queries:
    """An API server that remembers the paths of requests, and fails them."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def read(self, path: str, *_: object) -> bytes:
        self.paths.append(path)
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    @asynccontextmanager
    async def get(self, path: str, *_: object) -> AsyncIterator[Any]:
        self.paths.append(path)
        yield SimpleNamespace(content=None)


def test_the_api_server_sends_only_pods_that_ask_for_notices() -> None:
    async def run(server: Queries) -> None:
        source = PODS_TO_NOTIFY
        await source.list(cast("Api", server), 1)
        async with source.watch(cast("Api", server), "v1", "1", seconds=1, silence=1):
            pass

    asyncio.run(run(server := Queries()))
    selector = "labelSelector=spotgate.dev%2Fon-reclaim+in+%28inform%2Cevict%29"
    assert len(server.paths) == 2
    assert all(selector in path for path in server.paths)
