"""300 random placements, judged by kube-scheduler: the Nodes to which it binds a Pod after admission.

Each pool of 50 random clusters has a Node. For each Pod and each Node of its cluster, a copy of the Pod is pinned to the
Node. Each round has one Pod of each cluster, so that a Node's resources are free.
"""

from __future__ import annotations

import asyncio
import ssl
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from tests.controlplane.harness.cluster import start_cluster
from tests.controlplane.harness.populate import NODE_INFO
from tests.placement_oracle.admission import admit
from tests.placement_oracle.cases import cluster_at, pods_at
from tests.placement_oracle.judge import CLAIMS, Judge
from tests.placement_oracle.scheduler import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from tests.placement_oracle.admission import Admitted
    from tests.placement_oracle.clusters import Machine

JSON = dict[str, Any]

CLUSTERS, ROUNDS = 50, 6
NODES, NAMESPACES, PODS = "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/namespaces/team-a/pods"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMED = f"{RESOURCES}/namespaces/team-a/resourceclaims"


class Placement(NamedTuple):
    """A Pod, its judge, and admission's answer. ``seed`` is for `python -m tests.placement_oracle --show`."""

    seed: str
    judge: Judge
    admitted: Admitted

    def copy_for(self, machine: Machine) -> str:
        """Return the name of the copy for a Node."""
        return f"{self.seed}-{machine.name}"

    def copies(self) -> list[tuple[str, Machine]]:
        """Return the name of the copy for each Node."""
        return [(self.copy_for(machine), machine) for machine in self.judge.cluster.machines]


def _rounds() -> list[list[Placement]]:
    """Return the placements of each round."""
    rounds: list[list[Placement]] = [[] for _ in range(ROUNDS)]
    for number in range(CLUSTERS):
        cluster = cluster_at(number)
        pods = {f"{number}.{index}": pod for index, pod in enumerate(pods_at(number, cluster))}
        # kube-scheduler doesn't know KAI's annotation.
        pods = {seed: pod for seed, pod in pods.items() if "gpu-fraction" not in pod["metadata"]["annotations"]}
        chosen = list(pods)[:ROUNDS]
        answers = admit([pods[seed] for seed in chosen], cluster.state)
        for placements, seed, admitted in zip(rounds, chosen, answers, strict=True):
            placements.append(Placement(seed, Judge(admitted.before, cluster), admitted))
    return rounds


def _node(number: int, machine: Machine) -> JSON:
    node = deepcopy(machine.node)
    node["metadata"]["name"] = f"{number}-{machine.name}"
    node["status"]["nodeInfo"] = NODE_INFO
    return node


def _slices(number: int, machine: Machine) -> Iterable[JSON]:
    """Yield the devices of a Node: one for each round, because no controller deletes the claims of a round."""
    node = f"{number}-{machine.name}"
    for driver in machine.devices:
        devices = [{"name": f"device-{index}"} for index in range(ROUNDS)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        yield {
            "metadata": {"name": f"{node}-{driver}"},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
        }


def _device_class(driver: str) -> JSON:
    return {
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }


def _claims(name: str, pod: JSON) -> Iterable[JSON]:
    """Yield the claims of a copy, which a controller would make from their templates."""
    for claim in pod["spec"].get("resourceClaims", ()):
        for driver in CLAIMS[claim["resourceClaimTemplateName"]] or {"dra.net"}:
            requests = [{"name": "device", "exactly": {"deviceClassName": driver}}]
            yield {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def _copy(name: str, pod: JSON, node: str) -> JSON:
    """Return a copy of a Pod that only this Node can run."""
    spec: JSON = deepcopy(pod["spec"])
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    pin = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    for term in affinity.setdefault(REQUIRED, {"nodeSelectorTerms": [{}]})["nodeSelectorTerms"]:
        term["matchFields"] = pin
    for claim in spec.get("resourceClaims", ()):
        del claim["resourceClaimTemplateName"]
        claim["resourceClaimName"] = name
    # The API server puts this taint on Nodes, and no kubelet makes them ready.
    spec["tolerations"].append({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"})
    return {"metadata": {"name": name}, "spec": spec}


async def _schedule(cluster: Cluster, rounds: list[list[Placement]]) -> dict[str, bool]:
    """Return, by the name of each copy, whether kube-scheduler binds it."""
    credentials = cluster.credentials
    tls = ssl.create_default_context(cafile=str(credentials.authority))
    headers = {"Authorization": f"Bearer {credentials.tokens['admin']}"}
    connector = aiohttp.TCPConnector(ssl=tls, limit=8)
    async with aiohttp.ClientSession(credentials.url, connector=connector, headers=headers) as session:

        async def create(path: str, manifests: Iterable[JSON]) -> None:
            async def post(manifest: JSON) -> None:
                async with session.post(path, json=manifest) as response:
                    assert response.ok, (manifest, await response.text())

            await asyncio.gather(*map(post, manifests))

        every = [placement for placements in rounds for placement in placements]
        machines = [(number, machine) for number in range(CLUSTERS) for machine in cluster_at(number).machines]
        await create(NAMESPACES, [{"metadata": {"name": "team-a"}}])
        await create(NODES, (_node(*machine) for machine in machines))
        await create(f"{RESOURCES}/deviceclasses", map(_device_class, set().union(*CLAIMS.values())))
        await create(f"{RESOURCES}/resourceslices", (s for machine in machines for s in _slices(*machine)))
        await create(CLAIMED, (c for p in every for name, _ in p.copies() for c in _claims(name, p.admitted.after)))
        kubeconfig = credentials.kubeconfig("system:kube-scheduler")
        flags = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000"]
        cluster.start("kube-scheduler", [f"--kubeconfig={kubeconfig}", *flags])

        bound: dict[str, bool] = {}
        for placements in rounds:
            copies = [(placement, *copy) for placement in placements for copy in placement.copies()]
            nodes = [f"{p.seed.partition('.')[0]}-{machine.name}" for p, _, machine in copies]
            await create(PODS, (_copy(n, p.admitted.after, o) for (p, n, _), o in zip(copies, nodes, strict=True)))
            pods: list[JSON] = [{}]
            while not all("conditions" in pod.get("status", {}) for pod in pods):
                await asyncio.sleep(0.2)
                cluster.expect_running()
                async with session.get(PODS) as response:
                    pods = (await response.json())["items"]
            bound |= {pod["metadata"]["name"]: "nodeName" in pod["spec"] for pod in pods}
            async with session.delete(f"{PODS}?gracePeriodSeconds=0") as response:
                assert response.ok
    return bound


@pytest.fixture(scope="module")
def rounds() -> list[list[Placement]]:
    return _rounds()


@pytest.fixture(scope="module")
def placements(rounds: list[list[Placement]]) -> list[Placement]:
    return [placement for group in rounds for placement in group]


@pytest.fixture(scope="module")
def bound(binaries: dict[str, Path], rounds: list[list[Placement]]) -> dict[str, bool]:
    with start_cluster(binaries, controllers=False) as cluster:
        return asyncio.run(_schedule(cluster, rounds))


def test_the_oracle_and_kube_scheduler_agree(bound: dict[str, bool], placements: list[Placement]) -> None:
    assert len(placements) == CLUSTERS * ROUNDS
    assert bound == {name: p.judge.can_run(p.admitted.after, m) for p in placements for name, m in p.copies()}


def test_kube_scheduler_binds_pods_where_they_should_run(bound: dict[str, bool], placements: list[Placement]) -> None:
    def runs(placement: Placement, machine: Machine) -> bool:
        return bound[placement.copy_for(machine)]

    wrong = {p.seed: p.judge.judge(p.admitted.after, p.admitted.findings, partial(runs, p)) for p in placements}
    assert {seed: list(map(str, mistakes)) for seed, mistakes in wrong.items() if mistakes} == {}
