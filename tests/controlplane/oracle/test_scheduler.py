"""300 random placements, evaluated by kube-scheduler: the Nodes to which it binds a Pod after admission.

Each Pod has a copy for each potential Node of its random cluster. The copy is pinned to a Node for itself, so that no other
Pod takes the Node's resources.
"""

from __future__ import annotations

import json
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.controlplane.harness.cluster import UNFAIR, start_cluster
from tests.controlplane.harness.populate import NODE_INFO
from tests.placement_oracle.admission import admit
from tests.placement_oracle.cases import CLUSTERS, cluster_at, pods_at
from tests.placement_oracle.judge import CLAIMS, Judge
from tests.placement_oracle.providers import NETWORK_CLASS
from tests.placement_oracle.scheduler import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from tests.placement_oracle.admission import Admitted
    from tests.placement_oracle.clusters import Machine

JSON = dict[str, Any]

PODS_EACH = 6
CONNECTIONS = 4
PODS = "/api/v1/namespaces/team-a/pods"
RESOURCES = "/apis/resource.k8s.io/v1"


class Placement(NamedTuple):
    """A Pod, its judge, and admission's answer. ``seed`` is for `python -m tests.placement_oracle --show`."""

    seed: str
    judge: Judge
    admitted: Admitted

    def name(self, machine: Machine) -> str:
        """Return the name of a copy, its Node, and its claim."""
        return f"{self.seed}-{machine.name}"


def _placements(number: int) -> Iterable[Placement]:
    """Yield the first Pods of a cluster, except those with KAI's annotation, which kube-scheduler doesn't know."""
    cluster = cluster_at(number)
    pods = {f"{number}.{index}": pod for index, pod in enumerate(pods_at(number, cluster))}
    seeds = [seed for seed, pod in pods.items() if "gpu-fraction" not in pod["metadata"]["annotations"]][:PODS_EACH]
    for seed, admitted in zip(seeds, admit([pods[seed] for seed in seeds], cluster.state), strict=True):
        yield Placement(seed, Judge(admitted.before, cluster), admitted)


def _node(name: str, machine: Machine) -> JSON:
    node = deepcopy(machine.node)
    node["metadata"]["name"] = name
    node["status"]["nodeInfo"] = NODE_INFO
    return node


def _slices(name: str, machine: Machine) -> Iterable[JSON]:
    """Yield the devices of a Node."""
    for driver in machine.devices:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": name, "pool": pool, "devices": [{"name": "device"}]}
        yield {"metadata": {"name": f"{name}-{driver}"}, "spec": spec}


def _device_class(driver: str) -> JSON:
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return {"metadata": {"name": driver}, "spec": {"selectors": [selector]}}


def _claims(name: str, pod: JSON) -> Iterable[JSON]:
    """Yield the claim of a copy, which a controller would create from its template."""
    for claim in pod["spec"].get("resourceClaims", ()):
        (driver,) = CLAIMS[claim["resourceClaimTemplateName"]] or {NETWORK_CLASS}
        requests = [{"name": "device", "exactly": {"deviceClassName": driver}}]
        yield {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def _copy(name: str, pod: JSON) -> JSON:
    """Return a copy of a Pod that is pinned to the Node of this name."""
    spec: JSON = deepcopy(pod["spec"])
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    for term in affinity.setdefault(REQUIRED, {"nodeSelectorTerms": [{}]})["nodeSelectorTerms"]:
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    for claim in spec.get("resourceClaims", ()):
        del claim["resourceClaimTemplateName"]
        claim["resourceClaimName"] = name
    # The API server puts this taint on new Nodes, and no kubelet makes them ready.
    spec["tolerations"].append({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"})
    return {"metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Client:
    """The administrator, with connections that stay open: each of thousands of requests would take longer to connect."""

    cluster: Cluster

    def create(self, path: str, manifests: Iterable[JSON]) -> None:
        """POST objects to a collection over several connections."""
        waiting = list(manifests)
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(
                threads.map(partial(self._create, path), (waiting[first::CONNECTIONS] for first in range(CONNECTIONS)))
            )

    def watch(self, path: str) -> Generator[JSON]:
        """Yield the objects of a collection, and then again each that changes."""
        with self._connected() as request:
            yield from (json.loads(event)["object"] for event in request("GET", f"{path}?watch=true"))

    def _create(self, path: str, manifests: list[JSON]) -> None:
        with self._connected() as request:
            for manifest in manifests:
                response = request("POST", path, json.dumps(manifest))
                text = response.read()
                assert response.status == HTTPStatus.CREATED, text

    @contextmanager
    def _connected(self) -> Iterator[Callable[..., HTTPResponse]]:
        credentials = self.cluster.credentials
        tls = ssl.create_default_context(cafile=str(credentials.authority))
        headers = {"Authorization": f"Bearer {credentials.tokens['admin']}", "Content-Type": "application/json"}
        with closing(HTTPSConnection(credentials.url.removeprefix("https://"), context=tls)) as connection:

            def request(method: str, path: str, body: str | None = None) -> HTTPResponse:
                connection.request(method, path, body, headers)
                return connection.getresponse()

            yield request


def _schedule(cluster: Cluster, placements: list[Placement]) -> dict[str, bool]:
    """Return, by the name of each copy, whether kube-scheduler binds it."""
    client = Client(cluster)
    copies = [(p.name(machine), p.admitted.after, machine) for p in placements for machine in p.judge.cluster.machines]
    with_claims = [copy for copy in copies if "resourceClaims" in copy[1]["spec"]]
    claims = (claim for name, pod, _ in with_claims for claim in _claims(name, pod))
    slices = (part for name, _, machine in with_claims for part in _slices(name, machine))
    client.create("/api/v1/namespaces", [{"metadata": {"name": "team-a"}}])
    client.create("/api/v1/nodes", (_node(name, machine) for name, _, machine in copies))
    client.create(f"{RESOURCES}/deviceclasses", map(_device_class, set().union(*CLAIMS.values())))
    client.create(f"{RESOURCES}/resourceslices", slices)
    client.create(f"{RESOURCES}/namespaces/team-a/resourceclaims", claims)
    client.create(PODS, (_copy(name, pod) for name, pod, _ in copies))
    # Started last, so that it knows all objects before it schedules the first Pod.
    kubeconfig = cluster.credentials.kubeconfig("system:kube-scheduler")
    flags = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000"]
    cluster.start("kube-scheduler", [f"--kubeconfig={kubeconfig}", *flags])
    bound: dict[str, bool] = {}
    with closing(client.watch(PODS)) as pods:
        while len(bound) < len(copies):
            pod = next(pods)
            if "conditions" in pod["status"]:
                bound[pod["metadata"]["name"]] = "nodeName" in pod["spec"]
    return bound


@pytest.fixture(scope="module")
def placements() -> list[Placement]:
    return [placement for number in range(CLUSTERS) for placement in _placements(number)]


@pytest.fixture(scope="module")
def bound(binaries: dict[str, Path], placements: list[Placement]) -> dict[str, bool]:
    with start_cluster(binaries, UNFAIR, controllers=False) as cluster:
        return _schedule(cluster, placements)


def test_the_oracle_and_kube_scheduler_agree(bound: dict[str, bool], placements: list[Placement]) -> None:
    assert len(placements) == CLUSTERS * PODS_EACH
    oracle = {p.name(m): p.judge.can_run(p.admitted.after, m) for p in placements for m in p.judge.cluster.machines}
    assert oracle.keys() == bound.keys()
    assert {name for name, answer in oracle.items() if answer != bound[name]} == set()


def test_kube_scheduler_binds_pods_where_they_should_run(bound: dict[str, bool], placements: list[Placement]) -> None:
    wrong = {}
    for placement in placements:
        judge, admitted = placement.judge, placement.admitted
        nodes = {machine.name for machine in judge.cluster.machines if bound[placement.name(machine)]}
        wrong[placement.seed] = list(map(str, judge.judge(admitted.after, admitted.findings, nodes)))
    assert {seed: mistakes for seed, mistakes in wrong.items() if mistakes} == {}
