"""Write to an API server as the controllers and kubelets of a large cluster do, in a separate process.

    python -m bench.scale.writer KUBECONFIG fill '{"nodes": 15000, ...}'
    python -m bench.scale.writer KUBECONFIG beat '{"nodes": 15000, ...}'

`fill` skips existing objects. `beat` runs until it is killed, and prints the numbers of its writes each second, as
JSON. It doesn't renew Leases, which kubelets do every ten seconds: spotgate doesn't read Leases, and 1,500 writes a
second would measure the API server.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
import orjson
import uvloop
import yaml

from bench.scale.objects import Sizes, budget, conditions, namespace, node, pool, probes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/team-0/poddisruptionbudgets",
}
_CONNECTIONS: Final = 24
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"

# Seconds between writes to the same object.
_HEARTBEAT: Final = 300
"""The period in which a kubelet reports an unchanged status: ``nodeStatusReportFrequency``."""
_NODE_LIFE: Final = 4 * 3600
"""Autoscalers and reclaims replace spot Nodes within hours."""
_POOL_STATUS: Final = 200
"""Karpenter updates a pool's resources when a Node joins or leaves it."""
_BUDGET_STATUS: Final = 400
"""The disruption controller updates a budget when a Pod starts or ends."""
_NAMESPACE_LABEL: Final = 5000
"""With 5,000 Namespaces, one Namespace changes each second."""


class Writer:
    """An administrator's client with many connections.

    Attributes:
        done: the numbers of writes by kind.
    """

    def __init__(self, session: aiohttp.ClientSession, sizes: Sizes) -> None:
        self.done: Counter[str] = Counter()
        self._session = session
        self._sizes = sizes

    async def fill(self) -> None:
        """Create all missing objects."""
        sizes = self._sizes
        await self._create(map(namespace, range(sizes.namespaces)))
        await self._create([*probes(), *map(pool, range(sizes.pools)), *map(budget, range(sizes.budgets))])
        await self._create(node(number, sizes) for number in range(sizes.nodes))

    async def _create(self, objects: Iterable[dict[str, Any]]) -> None:
        left = iter(objects)

        async def create() -> None:
            for item in left:
                await self._send("POST", PATHS[item["kind"]], item)

        await asyncio.gather(*(create() for _ in range(_CONNECTIONS)))

    async def beat(self) -> None:
        """Send the writes of a cluster at rest until cancelled."""
        sizes = self._sizes
        async with asyncio.TaskGroup() as group:
            for what, count, period, write in (
                ("heartbeats", sizes.nodes, _HEARTBEAT, self._heartbeat),
                ("changes", sizes.nodes, _NODE_LIFE, self._replace),
                ("changes", sizes.pools, _POOL_STATUS, self._pool_status),
                ("changes", sizes.budgets, _BUDGET_STATUS, self._budget_status),
                ("changes", sizes.namespaces, _NAMESPACE_LABEL, self._relabel),
            ):
                group.create_task(self._each(group, what, count, period, write))
            group.create_task(self._report())

    async def _each(
        self, group: asyncio.TaskGroup, what: str, count: int, period: float, write: Callable[[int], Awaitable[None]]
    ) -> None:
        """Write to each of ``count`` objects once per period, but at least once per second."""

        async def one(number: int) -> None:
            await write(number)
            self.done[what] += 1

        for number in itertools.cycle(range(count)):
            group.create_task(one(number))
            await asyncio.sleep(min(period / count, 1))

    async def _report(self) -> None:
        while True:
            print(orjson.dumps(self.done).decode(), flush=True)
            await asyncio.sleep(1)

    async def _heartbeat(self, number: int) -> None:
        await self._send(
            "PATCH", f"{self._node(number)}/status", {"status": {"conditions": conditions(_now())}}, _STRATEGIC
        )

    async def _replace(self, number: int) -> None:
        await self._send("DELETE", self._node(number))
        await self._send("POST", PATHS["Node"], node(number, self._sizes))

    async def _pool_status(self, number: int) -> None:
        status = {"resources": {"cpu": _now()}}
        await self._send("PATCH", f"{PATHS['NodePool']}/pool-{number}/status", {"status": status}, _MERGE)

    async def _budget_status(self, number: int) -> None:
        status = {"disruptedPods": {f"service-{number}-0": _now()}}
        await self._send("PATCH", f"{PATHS['PodDisruptionBudget']}/service-{number}/status", {"status": status}, _MERGE)

    async def _relabel(self, number: int) -> None:
        metadata = {"labels": {"example.com/seen": datetime.now(UTC).strftime("%H-%M-%S")}}
        await self._send("PATCH", f"{PATHS['Namespace']}/team-{number}", {"metadata": metadata}, _MERGE)

    def _node(self, number: int) -> str:
        return f"{PATHS['Node']}/{node(number, self._sizes)['metadata']['name']}"

    async def _send(self, method: str, path: str, body: object = None, media_type: str = "application/json") -> None:
        headers = {"Content-Type": media_type}
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(method, path, data=data, headers=headers) as response:
            answer = await response.read()
            # A Node to replace may not exist, and an object to create may exist.
            if not response.ok and response.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise SystemExit(f"{method} {path}: {answer.decode()}")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def write(config: dict[str, Any], what: str, sizes: Sizes) -> None:
    """Fill or beat the cluster of a kubeconfig, which has a token."""
    cluster = config["clusters"][0]["cluster"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=tls)
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    async with aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers) as session:
        writer = Writer(session, sizes)
        await (writer.fill() if what == "fill" else writer.beat())


if __name__ == "__main__":
    uvloop.run(
        write(yaml.safe_load(Path(sys.argv[1]).read_text()), sys.argv[2], msgspec.json.decode(sys.argv[3], type=Sizes))
    )
