"""`spotgate export map` on a real API server: each Pod gets the webhook's changes, or stays unchanged."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
import yaml

from tests.builders import labeled, node_pool, pod
from tests.controlplane.harness.kubectl import as_list
from tests.controlplane.harness.live import admin
from tests.controlplane.harness.populate import POOLS
from tests.controlplane.parity.answers import ADMINISTRATOR, connect
from tests.programs import since
from webhook.commands import main
from webhook.commands.export.mutating_policy.export import export
from webhook.documents import Document
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.inputs.objects import Manifest
from webhook.inputs.state import view_of
from webhook.kube.defaults import default_pod
from webhook.model.patch import apply_all
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.parity.answers import Server
    from webhook.engine.bundle import Bundle

pytestmark = since((1, 36), "v1 of MutatingAdmissionPolicies")

JSON = dict[str, Any]

SPOT = {"spotgate.dev/capacity": "spot"}
PREFERRED = {"spotgate.dev/capacity": "spot-preferred"}
SECONDS = 60.0
COMBINATIONS = 60
"""Random combinations for each cluster, out of about 80,000, in addition to the table."""

OWN = """\
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {name: theirs}
spec: {policies: [graceful-termination], namespaces: [exempt], reason: they know}
---
apiVersion: spotgate.dev/v1
kind: ReclaimNotice
metadata: {name: reclaim-notice}
spec: {action: {batch: evict, checkpointing: inform}}
"""


def of(pods: JSON, **spec: Any) -> JSON:
    """Return the Pod with a changed spec."""
    return {**pods, "spec": {**pods["spec"], **spec}}


def owned(thing: JSON, kind: str, api_version: str) -> JSON:
    owner = {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "1", "controller": True}
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [owner]}}


def containers(*more: JSON, **first: Any) -> list[JSON]:
    return [{"name": "main", "image": "registry.example.com/app:1", **first}, *more]


def gpus(number: int = 1) -> JSON:
    return {"resources": {"limits": {"nvidia.com/gpu": str(number)}}}


TAINTED = {"key": "example.com/spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
PRE_STOP = {"lifecycle": {"preStop": {"exec": {"command": ["/bin/true"]}}}}
AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
    }
}
POD_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
        ]
    }
}


class Case(NamedTuple):
    """A Pod and its outcome: ``changed`` as by the webhook, ``unchanged`` by both, or ``left`` to the webhook."""

    name: str
    pod: JSON
    becomes: str = "changed"
    namespace: str = "plain"


def spot(**spec: Any) -> JSON:
    return of(labeled(pod("case"), SPOT), **spec)


def keeping(words: str) -> JSON:
    return labeled(pod("case"), SPOT, {"spotgate.dev/keep": words})


def told(thing: JSON, action: str = "inform") -> JSON:
    return labeled(thing, {"spotgate.dev/on-reclaim": action})


def mounting(path: str, **mount: Any) -> JSON:
    mounts = [{"name": "data", "mountPath": path, **mount}]
    return of(pod("case"), volumes=[{"name": "data", "emptyDir": {}}], containers=containers(volumeMounts=mounts))


NOTICE = {
    "name": "spotgate-reclaim-notice",
    "downwardAPI": {
        "items": [{"path": "reclaim-at", "fieldRef": {"fieldPath": "metadata.annotations['spotgate.dev/reclaim-at']"}}]
    },
}

TABLE = [
    Case("spot", spot()),
    Case("spot preferred", labeled(pod("case"), PREFERRED)),
    Case("spot by its namespace", pod("case"), namespace="on-spot"),
    Case("on demand in a spot namespace", labeled(pod("case"), {"spotgate.dev/capacity": "on-demand"}), "unchanged", "on-spot"),
    Case("an unknown capacity in a spot namespace", labeled(pod("case"), {"spotgate.dev/capacity": ""}), "unchanged", "on-spot"),
    Case("no capacity label", pod("case"), "unchanged"),
    Case("a spot pool by annotation", labeled(pod("case"), {}, {"spotgate.dev/node-pool": "h100-spot"})),
    Case("another pool by annotation", labeled(pod("case"), SPOT, {"spotgate.dev/node-pool": "h100"}), "unchanged"),
    Case("own toleration of the taint", spot(tolerations=[TAINTED])),
    Case("own toleration of everything", spot(tolerations=[{"operator": "Exists"}])),
    Case("own toleration for a while", spot(tolerations=[{**TAINTED, "effect": "NoExecute", "tolerationSeconds": 5}])),
    Case("own selector of the pools", of(pod("case"), nodeSelector={"example.com/capacity": "spot"})),
    Case("own selector of a pool", of(pod("case"), nodeSelector={"compute.coreweave.com/node-pool": "cpu-spot"})),
    Case("own selector of another pool", of(pod("case"), nodeSelector={"compute.coreweave.com/node-pool": "h100"}), "unchanged"),
    Case("own selector of a platform", spot(nodeSelector={"kubernetes.io/arch": "amd64"})),
    Case("own selector of another label", spot(nodeSelector={"example.com/a": "b"}), "left"),
    Case("own selector of several labels", spot(nodeSelector={"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}), "left"),
    Case("own node affinity", spot(affinity={"nodeAffinity": AFFINITY}), "left"),
    Case("an on-demand floor", labeled(pod("case"), SPOT, {"spotgate.dev/on-demand-floor": "1"}), "left"),
    Case("own pod affinity", of(labeled(pod("case"), PREFERRED), affinity=POD_AFFINITY)),
    Case("own operating system", spot(os={"name": "linux"}), "left"),
    Case("GPUs", spot(containers=containers(**gpus()))),
    Case("a limit of 0 GPUs", spot(containers=containers(**gpus(0)))),
    Case("GPUs of a sidecar", spot(initContainers=[{"name": "side", "image": "i", "restartPolicy": "Always", **gpus()}])),
    Case("GPUs of an unlisted kind", spot(containers=containers(resources={"limits": {"nvidia.com/mig-1g.5gb": "1"}})), "left"),
    Case("a device of a DeviceClass", spot(containers=containers(resources={"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}})), "left"),
    Case("GPUs of a training job", owned(spot(containers=containers(**gpus())), "PyTorchJob", "kubeflow.org/v1")),
    Case("init containers", spot(initContainers=[{"name": "init", "image": "i"}], containers=containers({"name": "more", "image": "i"}))),
    Case("existing preStop", spot(containers=containers({"name": "more", "image": "i"}, **PRE_STOP))),
    Case("existing postStart", spot(containers=containers(lifecycle={"postStart": {"sleep": {"seconds": 1}}}))),
    Case("own grace period", spot(terminationGracePeriodSeconds=77)),
    Case("grace period over the budget", spot(terminationGracePeriodSeconds=900)),
    Case("grace period shorter than the sleep", spot(terminationGracePeriodSeconds=3)),
    Case("a named class", labeled(pod("case"), SPOT | {"spotgate.dev/workload-class": "queue-worker"})),
    Case("an unknown class", labeled(pod("case"), SPOT | {"spotgate.dev/workload-class": "none"})),
    Case("a queue worker", owned(spot(), "ReplicaSet", "apps/v1")),
    Case("a server", owned(spot(containers=containers(ports=[{"containerPort": 80}])), "ReplicaSet", "apps/v1")),
    Case("runs to completion", spot(restartPolicy="Never")),
    Case("runs to completion with GPUs", spot(restartPolicy="OnFailure", containers=containers(**gpus()))),
    Case("a job", owned(spot(restartPolicy="OnFailure"), "Job", "batch/v1")),
    *(Case(f"keep {words}", keeping(words)) for words in ("grace-period", "pre-stop", "node-selector", "tolerations, pre-stop")),
    Case("keep all", keeping("grace-period,pre-stop,node-selector,tolerations"), "unchanged"),
    Case("told", told(pod("case"))),
    Case("told on spot", told(spot(), "evict")),
    Case("told, with a sidecar and an init container", told(spot(initContainers=[{"name": "init", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}]))),
    Case("told, and the kind is left to the webhook", told(spot(affinity={"nodeAffinity": AFFINITY})), "left"),
    Case("told nothing", told(pod("case"), "none"), "unchanged"),
    Case("told by an unknown word", told(pod("case"), "tell"), "unchanged"),
    Case("told by its namespace", spot(), namespace="told"),
    Case("not on spot, in a namespace that tells", pod("case"), "unchanged", "told"),
    Case("told, and keeps", labeled(told(pod("case")), {}, {"spotgate.dev/keep": "reclaim-notice"}), "unchanged"),
    *(Case(f"told, with a mount at {path}", told(mounting(path))) for path in ("/data", "/var/run", "/var/run/spotgate2")),
    *(Case(f"told, with a mount at {path}", told(mounting(path)), "unchanged") for path in ("/run/spotgate/x", "/var//run/spotgate/")),
    *(Case(f"told, with a read-only mount at {path}", told(mounting(path, readOnly=True)), "unchanged") for path in ("/var", "/run")),
    Case("told, and has the volume", told(of(pod("case"), volumes=[NOTICE]))),
    Case("told, and a volume has the name", told(of(pod("case"), volumes=[{"name": NOTICE["name"], "emptyDir": {}}])), "unchanged"),
    Case("a DaemonSet's", owned(spot(), "DaemonSet", "apps/v1"), "unchanged"),
    Case("bound", spot(nodeName="cpu-spot-0"), "unchanged"),
    Case("another scheduler", spot(schedulerName="sunk-scheduler"), "unchanged"),
    Case("in a system namespace", spot(), "unchanged", "kube-system"),
    Case("exempt from graceful termination only", spot(), namespace="exempt"),
]  # fmt: skip

NAMESPACES = {"plain": {}, "on-spot": SPOT, "exempt": {}, "told": {"spotgate.dev/on-reclaim": "inform"}}


def combined(chosen: random.Random) -> Iterator[Case]:
    """Yield Pods of random parts; each gets the webhook's changes or stays unchanged."""
    parts: list[list[Any]] = [
        [{}, SPOT, SPOT, PREFERRED, {"spotgate.dev/capacity": "on-demand"}],
        [{}, {}, {"spotgate.dev/node-pool": "h100-spot"}, {"spotgate.dev/keep": "node-selector"}, {"spotgate.dev/keep": "tolerations"}],
        [{}, {}, *({"nodeSelector": labels} for labels in ({"example.com/capacity": "spot"}, {"cloud.google.com/gke-spot": "true"}, {"kubernetes.io/arch": "arm64"}))],
        [{}, *({"tolerations": [toleration]} for toleration in (TAINTED, {"key": "team", "operator": "Exists"}, {"operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists"}))],
        [containers(), containers(**gpus()), containers({"name": "b", "image": "i"}, **PRE_STOP), containers(lifecycle={"preStop": {"sleep": {"seconds": 20}}})],
        [{}, {"restartPolicy": "Never"}, {"terminationGracePeriodSeconds": 60}, {"terminationGracePeriodSeconds": 900}],
        [None, ("Job", "batch/v1"), ("ReplicaSet", "apps/v1"), ("DaemonSet", "apps/v1")],
    ]  # fmt: skip
    for number in range(COMBINATIONS):
        labels, annotations, selector, tolerations, listed, grace, owner = (chosen.choice(part) for part in parts)
        thing = of(labeled(pod("case"), labels, annotations), containers=listed, **selector, **tolerations, **grace)
        yield Case(f"combination {number}", owned(thing, *owner) if owner else thing, "either")


def cks() -> list[JSON]:
    return list(yaml.safe_load_all(POOLS.read_text()))


def dedicated() -> list[JSON]:
    """Return pools without a common label; one is a team's, and the GPU pools have a taint."""
    taint = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
    team = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    guard = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    cpu = {"computeClass": "spot", "instanceType": "cd-gp-a192-genoa"}
    return [
        node_pool("cpu-spot", **cpu, nodeTaints=[taint]),
        node_pool("cpu-spot-b", **cpu, nodeTaints=[taint]),
        node_pool("ml-spot", **cpu, nodeTaints=[taint, team]),
        node_pool("h100-spot", computeClass="spot", nodeTaints=[taint, guard]),
        node_pool("h100"),
    ]


def gke() -> list[JSON]:
    """Return Nodes of GKE, which represent pools and give a Pod 15 s to shut down."""
    labels = {"cloud.google.com/gke-nodepool": "a", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    marked = labels | {"cloud.google.com/gke-nodepool": "b", "cloud.google.com/gke-spot": "true"}
    nodes = [("a", labels), ("b", marked)]
    return [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": own}} for name, own in nodes]


CLUSTERS = {"cks": cks, "dedicated": dedicated, "gke": gke}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("policies")
    (folder / "own.yaml").write_text(OWN)
    from webhook.engine.bundle import SHIPPED  # noqa: PLC0415

    return load_bundle([SHIPPED, folder])


@pytest.fixture(scope="module")
def server(bare_cluster: Cluster) -> Iterator[Server]:
    kubectl = bare_cluster.kubectl
    for name, labels in NAMESPACES.items():
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    with connect(bare_cluster) as connection:
        yield connection
    kubectl("delete", "namespace", *NAMESPACES, "--wait=false")


def create(server: Server, case: Case) -> JSON:
    path = f"/api/v1/namespaces/{case.namespace}/pods?dryRun=All"
    status, body, _ = server.send("POST", path, case.pod, ADMINISTRATOR)
    assert status == HTTPStatus.CREATED, (case.name, body)
    return {"spec": body["spec"], "labels": body["metadata"].get("labels"), "of": body["metadata"].get("annotations")}


def of_webhook(case: Case, admitted: JSON, bundle: Bundle, context: Context) -> JSON:
    """Return the Pod after the webhook's mutation, given the admitted Pod with its defaults."""
    thing = {**case.pod, "spec": msgspec.json.decode(msgspec.json.encode(admitted["spec"]))}
    thing["metadata"] = {**copy.deepcopy(case.pod["metadata"]), "namespace": case.namespace}
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "case",
        "namespace": case.namespace,
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters"]},
        "object": thing,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    apply_all(decide(decode_review(json.dumps(review).encode()), bundle.index, context).patch, thing)
    default_pod(thing)
    return {**admitted, "spec": thing["spec"], "labels": thing["metadata"].get("labels") or None}


@pytest.mark.parametrize("name", CLUSTERS)
def test_each_pod_gets_the_webhooks_changes_or_stays_unchanged(
    name: str, server: Server, bare_cluster: Cluster, bundle: Bundle
) -> None:
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}} for namespace, labels in NAMESPACES.items()]  # fmt: skip
    manifests = [Manifest(Document(name, 1, thing), (), thing["apiVersion"], thing["kind"], thing) for thing in [*CLUSTERS[name](), *namespaces]]  # fmt: skip
    view = view_of(manifests, bundle.providers, complete=True)
    context = Context(phase=Phase.MUTATE, now=datetime(2026, 11, 22, tzinfo=UTC), view=view)
    cases = [*TABLE, *combined(random.Random(name))]  # noqa: S311 - no secret
    before = [create(server, case) for case in cases]
    wanted = [of_webhook(case, admitted, bundle, context) for case, admitted in zip(cases, before, strict=True)]
    exported, _, _ = export(bundle, context)
    with contextlib.ExitStack() as stack:
        stack.callback(_wait_until, lambda: create(server, TABLE[0]) == before[0])
        stack.callback(bare_cluster.kubectl.run, "delete", "--filename=-", documents=as_list(*exported))
        bare_cluster.kubectl.apply(*exported)
        _wait_until(lambda: create(server, TABLE[0]) != before[0])
        after = [create(server, case) for case in cases]
    became = {case.name: _became(*three) for case, *three in zip(cases, before, wanted, after, strict=True)}
    different = {
        case.name: (pod, given)
        for case, pod, given in zip(cases, wanted, after, strict=True)
        if became[case.name] == "different"
    }
    assert different == {}
    if name == "cks":
        assert {case.name: case.becomes for case in TABLE} == {case.name: became[case.name] for case in TABLE}
    counts = [became[case.name] for case in cases]
    assert counts.count("changed") > 20


@pytest.mark.usefixtures("bare_pools")
def test_the_pools_of_a_live_cluster_are_exported_or_missing_permissions_are_reported(
    bare_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl = bare_cluster.kubectl
    assert main(["export", "map", f"--kubeconfig={admin(bare_cluster)}"]) == 0
    exported = capsys.readouterr().out
    pools = kubectl.get("nodepools.compute.coreweave.com")["items"]
    assert exported.partition("\n")[0].endswith(f" and {len(pools)} node pools.")
    dry = kubectl.run("apply", "--dry-run=server", "--filename=-", documents=exported)
    assert (dry.returncode, dry.stderr) == (0, "")

    kubectl("create", "serviceaccount", "nobody")
    nobody = bare_cluster.as_service_account("default", "nobody").kubeconfig
    assert main(["export", "map", f"--kubeconfig={nobody}"]) == 2
    unread, _, rules = capsys.readouterr().err.partition("add to a ClusterRole of this user (403 above):\n")
    assert "namespaces, nodepools.compute.coreweave.com, nodes can't be read: 403 Forbidden" in unread
    assert {"apiGroups": [""], "resources": ["namespaces", "nodes"], "verbs": ["list"]} in yaml.safe_load(rules)


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _became(before: JSON, wanted: JSON, after: JSON) -> str:
    if after == wanted:
        return "unchanged" if after == before else "changed"
    return "left" if after == before else "different"
