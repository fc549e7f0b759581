"""The writes of a leader: each for one version of one Pod, and repeated only if the Pod still needs it."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.controller.test_notice import NOTICE, NOW, POD
from webhook.cluster.api import ApiError
from webhook.controller import work_queue
from webhook.controller.notice import informer as module
from webhook.controller.notice import objects
from webhook.controller.notice.informer import Informer, rfc_3339
from webhook.controller.notice.objects import NotifiedNode
from webhook.engine.bundle import load_bundle
from webhook.kube.notice import RECLAIM_AT
from webhook.runtime.log import configure_logging

if TYPE_CHECKING:
    from webhook.cluster.api import Api
    from webhook.controller.notice.objects import NotifiedPod

JSON = dict[str, Any]

REMOVAL = NOTICE.removal
NODE = NotifiedNode("a", "1", replace(NOTICE, drain=REMOVAL))
TOLD = replace(POD, version="8", told=REMOVAL, annotated=True)
FAILED = ApiError.refused(500, "no")
CHANGED = ApiError.refused(409, "the object has been modified")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log to an open file, retry at once, and stop the clock."""
    configure_logging(io.BytesIO())
    monkeypatch.setattr(work_queue, "_FIRST_PAUSE", 0.001)
    for reader in (module, objects):
        monkeypatch.setattr(reader, "utc_now", lambda: NOW)


class Server:
    """An API server whose watch shows a written annotation at once; ``errors`` has the answers to the next writes."""

    def __init__(self, *errors: ApiError | NotifiedPod, node: JSON | None = None) -> None:
        self.errors = list(errors)
        self.node = node or {"metadata": {"name": "a", "uid": "1"}}
        self.writes: list[tuple[str, JSON]] = []
        self.registry = CollectorRegistry()
        self.leads = True
        providers = load_bundle().providers.values()
        self.informer = Informer(cast("Api", self), providers, self.registry, lambda: self.leads)
        self.pods: dict[str, NotifiedPod] = {}

    def show(self, pod: NotifiedPod) -> None:
        """Let the watch show a Pod."""
        self.informer.take_pod(self.pods.get(pod.name), pod)
        self.pods[pod.name] = pod

    async def read(self, path: str, _seconds: float) -> bytes:
        assert path == "/api/v1/nodes/a"
        return msgspec.json.encode(self.node)

    async def write(self, method: str, path: str, body: JSON, *_: object) -> None:
        if path.endswith("/events"):
            return
        self.writes.append((f"{method} {path.rpartition('/')[2]}", body))
        answer = self.errors.pop(0) if self.errors else None
        if isinstance(answer, ApiError):
            raise answer
        if answer is not None:  # another leader was faster
            self.show(answer)
            raise CHANGED
        if method == "PATCH":
            pod = self.pods[path.rpartition("/")[2]]
            told = REMOVAL if body["metadata"]["annotations"][RECLAIM_AT] else None
            self.show(replace(pod, version=f"{pod.version}1", told=told, annotated=told is not None))

    def lead(self, count: int) -> list[tuple[str, JSON]]:
        """Lead until the server has got this many writes, and a moment longer. Return the writes."""

        async def run() -> None:
            leading = asyncio.create_task(self.informer.lead())
            async with asyncio.timeout(20):
                while len(self.writes) < count:  # noqa: ASYNC110 - the server is called, not awaited
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert not leading.done()
            leading.cancel()

        asyncio.run(run())
        return self.writes


def informing(version: str) -> JSON:
    return {"metadata": {"uid": "1", "resourceVersion": version, "annotations": {RECLAIM_AT: rfc_3339(REMOVAL)}}}


def test_each_write_requires_the_version_that_its_step_was_decided_for() -> None:
    server = Server()
    server.show(replace(POD, evict=True))
    server.informer.take_node(None, NODE)
    inform, (what, eviction) = server.lead(2)
    assert inform == ("PATCH web", informing("7"))
    assert what == "POST eviction"
    assert eviction["deleteOptions"]["preconditions"] == {"uid": "1", "resourceVersion": "71"}
    assert eviction["deleteOptions"]["gracePeriodSeconds"] == 370
    assert server.registry.get_sample_value("spotgate_reclaim_evictions_total", {"result": "granted"}) == 1
    assert server.registry.get_sample_value("spotgate_reclaim_informed_seconds_count") == 1
    assert server.registry.get_sample_value("spotgate_reclaim_notices_total", {"provider": "cks"}) == 1
    assert server.registry.get_sample_value("spotgate_reclaim_oldest_wait_seconds") == 0


def test_a_pod_that_another_leader_informed_is_left_alone() -> None:
    server = Server(TOLD)
    server.show(POD)
    server.informer.take_node(None, NODE)
    assert server.lead(1) == [("PATCH web", informing("7"))]


def test_a_write_is_repeated_for_the_new_version_if_another_client_changed_the_pod() -> None:
    server = Server(replace(POD, version="8"))
    server.show(POD)
    server.informer.take_node(None, NODE)
    assert server.lead(2) == [("PATCH web", informing("7")), ("PATCH web", informing("8"))]


def test_a_pod_that_cannot_be_written_delays_no_other_and_waits_in_the_metrics() -> None:
    server = Server()
    server.show(POD)
    server.show(replace(POD, name="other", uid="2"))
    server.informer.take_node(None, NODE)
    write = server.write

    async def failing(method: str, path: str, body: JSON, *rest: object) -> None:
        if path.endswith("web"):
            raise FAILED
        await write(method, path, body, *rest)

    server.write = failing  # type: ignore[method-assign]
    assert [what for what, _ in server.lead(1)] == ["PATCH other"]
    assert (server.registry.get_sample_value("spotgate_reclaim_oldest_wait_seconds") or 0) > 0


@pytest.mark.parametrize("reclaimed", [False, True])
def test_a_time_is_removed_only_if_the_node_itself_has_no_notice(*, reclaimed: bool) -> None:
    server = Server()
    if reclaimed:  # the watch of Nodes is late
        server.node["metadata"]["annotations"] = {RECLAIM_AT: rfc_3339(REMOVAL)}
    server.show(TOLD)
    removal = {"metadata": {"uid": "1", "resourceVersion": "8", "annotations": {RECLAIM_AT: None}}}
    assert server.lead(not reclaimed) == ([] if reclaimed else [("PATCH web", removal)])


def test_an_eviction_that_a_budget_blocks_is_repeated_until_the_drain() -> None:
    blocked = ApiError.refused(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    server = Server(blocked, blocked)
    server.show(replace(TOLD, evict=True))
    server.informer.take_node(None, NODE)
    assert [what for what, _ in server.lead(3)] == ["POST eviction"] * 3
    server = Server(blocked, blocked)
    server.show(replace(TOLD, evict=True))
    server.informer.take_node(None, replace(NODE, notice=replace(NODE.notice, drain=NOW)))
    assert [what for what, _ in server.lead(1)] == ["POST eviction"]
    assert server.registry.get_sample_value("spotgate_reclaim_evictions_total", {"result": "blocked"}) == 1


def test_nothing_is_written_while_the_process_does_not_lead() -> None:
    server = Server()
    server.show(POD)
    server.informer.take_node(None, NODE)
    server.leads = False
    assert server.lead(0) == []
