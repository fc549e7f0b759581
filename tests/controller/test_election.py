"""Leader election: which replica may write the Lease, and which one acts as the leader."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from kubernetes.aio.client import V1Lease, V1LeaseSpec
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from tests.builders import cks_pool, view_of
from tests.controller.test_ledger import ledger_of
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, FLOOR_GATE
from webhook.cluster.api import Api, ApiError
from webhook.controller import election
from webhook.controller.election import Lock
from webhook.controller.leader import Leader
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.pods import FloorPod, read_pod
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.server.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from webhook.cluster.source import ListedMetadata
    from webhook.engine.index import Index


@pytest.fixture(autouse=True)
def _log() -> None:
    """Log to an open file: earlier commands configured one that is closed."""
    configure_logging(io.BytesIO())


RECORD = "2026-11-26 00:00:00.100000"


class Leases:
    """An API server with one Lease."""

    def __init__(self) -> None:
        self.lease = V1Lease(spec=V1LeaseSpec())

    async def read_namespaced_lease(self, _name: str, _namespace: str) -> V1Lease:
        return deepcopy(self.lease)

    async def replace_namespaced_lease(self, name: str, namespace: str, body: V1Lease) -> None:
        del name, namespace
        self.lease = deepcopy(body)


class Candidate:
    """A candidate whose clock and readiness to renew the tests set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.may_renew = True
        self.lock = Lock("spotgate-system", lambda: None, lambda: self.may_renew)
        self.leases = self.lock.api_instance = Leases()

    def look(self) -> None:
        asyncio.run(self.lock.get(self.lock.name, "spotgate-system"))

    def renew(self) -> bool:
        self.look()
        record = LeaderElectionRecord(self.lock.identity, "10", RECORD, RECORD)
        return asyncio.run(self.lock.update(self.lock.name, "spotgate-system", record))

    @property
    def holder(self) -> str | None:
        holder: str | None = self.leases.lease.spec.holder_identity
        return holder


@pytest.fixture
def candidate(monkeypatch: pytest.MonkeyPatch) -> Candidate:
    candidate = Candidate()
    monkeypatch.setattr(election, "monotonic", lambda: candidate.now)
    return candidate


@pytest.mark.parametrize("seconds", [2, 8, 9, 60])
def test_a_leader_with_a_waiting_pod_never_renews(candidate: Candidate, seconds: float) -> None:
    assert candidate.renew()
    candidate.may_renew = False
    candidate.now += seconds
    assert not candidate.renew()


def test_a_leader_stops_when_it_sees_another_leader(candidate: Candidate) -> None:
    candidate.renew()
    candidate.look()
    assert candidate.lock.leads
    candidate.leases.lease.spec.holder_identity = "another"
    candidate.look()
    assert not candidate.lock.leads


def test_a_stopping_leader_releases_the_lease_after_its_work_has_ended(candidate: Candidate) -> None:
    held: list[Any] = []

    async def lead() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            held.append(candidate.holder)

    async def stop() -> None:
        candidate.lock.leading = asyncio.create_task(lead())
        await asyncio.sleep(0)
        await candidate.lock.release()

    candidate.renew()
    asyncio.run(stop())
    assert held == [candidate.lock.identity]
    assert candidate.holder is None
    assert not candidate.lock.leads


def test_a_candidate_does_not_release_another_leaders_lease(candidate: Candidate) -> None:
    candidate.renew()
    candidate.leases.lease.spec.holder_identity = "another"
    asyncio.run(candidate.lock.release())
    assert candidate.holder == "another"


JSON = dict[str, Any]

VIEW = view_of(
    cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",)), cks_pool("cpu", spot=False, gpu=False)
)
BY_RBAC = (
    'pods "web" is forbidden: User "controller" cannot patch resource "pods" in API group "" in the namespace "shop"'
)
BY_ADMISSION = 'admission webhook "no.example.com" denied the request: no'


def gated(namespace: str = "shop") -> FloorPod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    manifest = {
        "metadata": {
            "name": "web",
            "namespace": namespace,
            "uid": "web",
            "resourceVersion": "1",
            "labels": {"spotgate.dev/capacity": "spot"},
            "annotations": {FLOOR_ANNOTATION: "1"},
            "ownerReferences": [owner],
        },
        "spec": {"schedulingGates": [{"name": FLOOR_GATE}], "containers": [{"name": "web", "image": "web"}]},
    }
    pod = read_pod(cast("ListedMetadata", None), msgspec.Raw(msgspec.json.encode(manifest)))
    assert pod is not None
    return pod


class Server:
    """An API server that answers PATCH requests with these errors, and then accepts one."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.accepted = asyncio.Event()
        self.patches: list[list[JSON]] = []

    @asynccontextmanager
    async def send(self, _method: str, _path: str, body: list[JSON], *_: object) -> AsyncIterator[Server]:
        self.patches.append(body)
        if self.errors:
            raise self.errors.pop(0)
        self.accepted.set()
        yield self

    async def read(self) -> bytes:
        return b""


def assign(server: Server, index: Index) -> list[list[str]]:
    """Return the paths of each PATCH, up to the first accepted one."""

    async def lead() -> None:
        ledger = ledger_of(gated())
        metrics = ControllerMetrics(ledger, lambda: True)
        leader = Leader(cast("Api", server), index, lambda: VIEW, ledger, metrics)
        leading = asyncio.create_task(leader.lead(lambda: True))
        async with asyncio.timeout(10):
            await server.accepted.wait()
        leading.cancel()

    asyncio.run(lead())
    return [[operation["path"] for operation in patch] for patch in server.patches]


@pytest.mark.parametrize(
    ("error", "placed"),
    [
        (ApiError.refused(403, BY_RBAC), True),
        (ApiError.refused(500, "timeout"), True),
        (ApiError.refused(409, "changed"), True),
        (ApiError.refused(422, "the server rejected our request due to an error in our request"), True),
        (ApiError.refused(403, BY_ADMISSION), False),
        (ApiError.refused(422, "invalid"), False),
    ],
)
def test_only_a_pod_that_admission_rejects_is_released_without_placement(error: ApiError, placed: bool) -> None:  # noqa: FBT001
    first, second = assign(Server(error), load_bundle().index)
    assert "/spec/nodeSelector" in first
    assert ("/spec/nodeSelector" in second) is placed
    assert "/spec/schedulingGates/0" in second


def test_a_pod_that_no_policy_places_is_released_without_an_assignment(tmp_path: Path) -> None:
    mode = tmp_path / "mode.yaml"
    mode.write_text("{apiVersion: spotgate.dev/v1, kind: Mode, metadata: {name: mode}, spec: {enforcement: audit}}")
    (patch,) = assign(Server(), load_bundle([SHIPPED, mode]).index)
    assert patch == ["/metadata/resourceVersion", "/spec/schedulingGates/0"]


def test_owners_in_different_namespaces_differ() -> None:
    assert gated("shop").owner != gated("team").owner
