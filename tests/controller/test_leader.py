"""The leader places Pods with patches that fail if the Pods have changed, and no Pod delays another one."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.builders import cks_pool, view_of
from tests.controller.test_ledger import ledger_of
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, FLOOR_GATE
from webhook.cluster.api import Api, ApiError
from webhook.controller.leader import Leader
from webhook.controller.ledger import Ledger
from webhook.controller.pods import FloorPod, read_pod
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.runtime.log import configure_logging

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.cluster.source import ListedMetadata
    from webhook.engine.index import Index


@pytest.fixture(autouse=True)
def _log() -> None:
    """Log to an open file: earlier commands configured one that is closed."""
    configure_logging(io.BytesIO())


JSON = dict[str, Any]

VIEW = view_of(
    cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",)), cks_pool("cpu", spot=False, gpu=False)
)
BY_RBAC = (
    'pods "web" is forbidden: User "controller" cannot patch resource "pods" in API group "" in the namespace "shop"'
)
BY_ADMISSION = 'admission webhook "no.example.com" denied the request: no'
TESTS = ["/metadata/uid", "/metadata/annotations/spotgate.dev~1on-demand-floor", "/spec/schedulingGates/0/name"]
CHANGED = ApiError.refused(422, "the server rejected our request due to an error in our request")
RELEASE = {"metadata": {"uid": "web"}, "spec": {"schedulingGates": [{"$patch": "delete", "name": FLOOR_GATE}]}}


def manifest(name: str = "web", **metadata: Any) -> JSON:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "resourceVersion": "7",
            "creationTimestamp": "2026-11-26T00:00:00Z",
            "labels": {"spotgate.dev/capacity": "spot"},
            "annotations": {FLOOR_ANNOTATION: "1"},
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {"schedulingGates": [{"name": FLOOR_GATE}], "containers": [{"name": "web", "image": "web"}]},
    }


def read(stored: JSON) -> FloorPod:
    pod = read_pod(cast("ListedMetadata", None), msgspec.Raw(msgspec.json.encode(stored)))
    assert pod is not None
    return pod


class Server:
    """An API server with one Pod, which answers PATCH requests with these errors, and then accepts one."""

    def __init__(self, *errors: ApiError, stored: JSON | None = None) -> None:
        self.errors = list(errors)
        self.accepted = asyncio.Event()
        self.patches: list[list[JSON] | JSON] = []
        self.stored = stored or manifest()

    async def read(self, path: str, _seconds: float, *, at_most: int) -> bytes:
        body = msgspec.json.encode({**self.stored, "metadata": {**self.stored["metadata"], "name": path[-3:]}})
        if len(body) > at_most:
            raise ApiError.refused(413, "too large")
        return body

    async def write(self, _method: str, _path: str, body: list[JSON] | JSON, *_: object) -> None:
        self.patches.append(body)
        if self.errors:
            raise self.errors.pop(0)
        self.accepted.set()


def lead(server: Server, index: Index, *pods: FloorPod, seconds: float = 20) -> None:
    """Let a leader assign Pods until the server accepts a PATCH."""

    async def run() -> None:
        ledger = ledger_of(*pods)
        leader = Leader(cast("Api", server), index, lambda: VIEW, ledger, CollectorRegistry(), lambda: True)
        leading = asyncio.create_task(leader.lead())
        accepted = asyncio.create_task(server.accepted.wait())
        async with asyncio.timeout(seconds):
            await asyncio.wait((accepted, leading), return_when=asyncio.FIRST_COMPLETED)
        if leading.done():
            await leading
        leading.cancel()

    asyncio.run(run())


def assign(server: Server, index: Index) -> list[list[str]]:
    """Return the paths of each PATCH, up to the first accepted one. A release has none."""
    lead(server, index, read(manifest()))
    return [[operation["path"] for operation in patch] for patch in map(_listed, server.patches)]


def _listed(patch: list[JSON] | JSON) -> list[JSON]:
    assert isinstance(patch, list) or patch == RELEASE
    return patch if isinstance(patch, list) else []


@pytest.mark.parametrize(
    ("error", "placed"),
    [
        (ApiError.refused(403, BY_RBAC), True),
        (ApiError.refused(500, "timeout"), True),
        (ApiError.refused(409, "changed"), True),
        (CHANGED, True),
        (ApiError.refused(403, BY_ADMISSION), False),
        (ApiError.refused(422, "invalid"), False),
    ],
)
def test_only_a_pod_that_admission_rejects_is_released_without_placement(error: ApiError, placed: bool) -> None:  # noqa: FBT001
    first, second = assign(Server(error), load_bundle().index)
    assert first[: len(TESTS)] == TESTS
    assert "/spec/nodeSelector" in first
    assert second == (first if placed else [])


def test_a_pod_that_always_changes_is_released_after_five_conflicts() -> None:
    *placements, last = assign(Server(*5 * [CHANGED]), load_bundle().index)
    assert len(placements) == 5
    assert last == []


@pytest.mark.parametrize(
    "stored",
    [
        manifest(annotations={FLOOR_ANNOTATION: "2"}),
        manifest(annotations={FLOOR_ANNOTATION: "1", "large": (2 << 20) * "a"}),
        manifest(ownerReferences=[]),
    ],
    ids=["another floor", "too large", "another owner"],
)
def test_a_pod_that_the_leader_cannot_place_is_released(stored: JSON) -> None:
    assert assign(Server(stored=stored), load_bundle().index) == [[]]


def test_a_pod_that_no_policy_places_is_released_without_an_assignment(tmp_path: Path) -> None:
    mode = tmp_path / "mode.yaml"
    mode.write_text("{apiVersion: spotgate.dev/v1, kind: Mode, metadata: {name: mode}, spec: {enforcement: audit}}")
    (patch,) = assign(Server(), load_bundle([SHIPPED, mode]).index)
    assert patch == [*TESTS, "/spec/schedulingGates/0"]


def test_a_bug_releases_the_pod_and_does_not_end_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Leader, "_decide", fail)
    assert assign(Server(), load_bundle().index) == [[]]


def test_a_leader_without_permissions_gives_up_when_pods_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "oldest", lambda _: 11.0)
    with pytest.raises(ExceptionGroup):
        lead(Server(*99 * [ApiError.refused(403, BY_RBAC)]), load_bundle().index, read(manifest()))


class SlowServer(Server):
    """An API server that never answers a PATCH in one namespace."""

    async def write(self, method: str, path: str, body: list[JSON] | JSON, *rest: object) -> None:
        if "/namespaces/hostile/" in path:
            self.patches.append(body)
            await asyncio.sleep(3600)
        await super().write(method, path, body, *rest)


def test_the_pods_of_one_namespace_do_not_take_all_places() -> None:
    server = SlowServer()
    hostile = [
        read({**manifest(f"h{number:02}", namespace="hostile", ownerReferences=[]), "status": {}})
        for number in range(99)
    ]
    lead(server, load_bundle().index, *hostile, read(manifest()))
    assert len(server.patches) == 16 + 1


def test_owners_in_different_namespaces_differ() -> None:
    assert read(manifest()).owner != read(manifest(namespace="team")).owner


def test_a_pod_keeps_no_text_that_a_user_can_make_long() -> None:
    long = (1 << 20) * "a"
    stored = manifest(annotations={FLOOR_ANNOTATION: "1", "long": long})
    stored["spec"]["schedulingGates"] = [{"name": FLOOR_GATE}, {"name": long}]
    assert len(msgspec.json.encode(read(stored))) < 2048
