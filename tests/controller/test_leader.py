"""Assignments: what the leader sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from tests.controller.test_ledger import ledger_of
from tests.objects import cks_pool, view_of
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, FLOOR_GATE
from webhook.cluster.api import Api, ApiError
from webhook.controller.leader import Leader
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.pods import FloorPod, read_pod
from webhook.engine.bundle import SHIPPED, load_bundle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from webhook.cluster.source import ListedMetadata
    from webhook.engine.index import Index

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
    thing = {
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
    pod = read_pod(cast("ListedMetadata", None), msgspec.Raw(msgspec.json.encode(thing)))
    assert pod is not None
    return pod


class Server:
    """An API server that answers PATCHes with these errors, and then takes the next one."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.taken = asyncio.Event()
        self.patches: list[list[JSON]] = []

    @asynccontextmanager
    async def send(self, _method: str, _path: str, body: list[JSON], *_: object) -> AsyncIterator[Server]:
        self.patches.append(body)
        if self.errors:
            raise self.errors.pop(0)
        self.taken.set()
        yield self

    async def read(self) -> bytes:
        return b""


def assign(server: Server, index: Index) -> list[list[str]]:
    """Return the paths of each PATCH until one is taken."""

    async def lead() -> None:
        ledger = ledger_of(gated())
        metrics = ControllerMetrics(ledger, lambda: True)
        leader = Leader(cast("Api", server), index, lambda: VIEW, ledger, metrics)
        leading = asyncio.create_task(leader.lead(lambda: True))
        async with asyncio.timeout(10):
            await server.taken.wait()
        leading.cancel()

    asyncio.run(lead())
    return [[each["path"] for each in patch] for patch in server.patches]


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
def test_only_what_admission_refuses_is_released_without_a_placement(error: ApiError, placed: bool) -> None:  # noqa: FBT001
    first, second = assign(Server(error), load_bundle().index)
    assert "/spec/affinity" in first
    assert ("/spec/affinity" in second) is placed
    assert "/spec/schedulingGates/0" in second


def test_a_pod_that_the_policies_place_nowhere_is_released_and_not_marked_as_assigned(tmp_path: Path) -> None:
    mode = tmp_path / "mode.yaml"
    mode.write_text("{apiVersion: spotgate.dev/v1, kind: Mode, metadata: {name: mode}, spec: {enforcement: audit}}")
    (patch,) = assign(Server(), load_bundle([SHIPPED, mode]).index)
    assert patch == ["/metadata/resourceVersion", "/spec/schedulingGates/0"]


def test_an_owner_in_another_namespace_is_another_owner() -> None:
    assert gated("shop").owner != gated("team").owner
