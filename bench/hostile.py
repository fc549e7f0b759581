"""Cost of hostile requests: CPU, peak memory, and retained memory."""

from __future__ import annotations

import gc
import re
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from bench.decisions import Case
from bench.figures import Section
from webhook.model.review import BadReviewError
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle

_MIB: Final = 1024 * 1024

Json = dict[str, Any]


class Attack(NamedTuple):
    """A request that is designed to be expensive.

    Attributes:
        title: the kind and amount of data, which exceeds the limits or just satisfies them.
        resource: the plural and the group, such as ``nodepools.karpenter.sh``.
        object: the object to create, or to update from ``old``.
    """

    title: str
    resource: str
    object: Json
    old: Json | None = None


def attacks() -> Iterator[Attack]:
    """Yield the attacks one by one, because all of them together need much memory."""
    yield from _pods()
    yield from _constraints()
    yield from _pod_parts()
    yield from _pools()
    yield from _workloads()


def _pods() -> Iterator[Attack]:
    for count in (250, 50_000, 115_000, 230_000):
        yield Attack(f"Pod on spot, {count:,} nodeSelector keys", PODS, pod(SPOT, nodeSelector=_map(count)))
    selected = _map(115_000)
    yield Attack("Pod, 115,000 nodeSelector keys and a reserved label", PODS, pod(RESERVED, nodeSelector=selected))
    both = pod(RESERVED, nodeSelector=selected), pod(SPOT, nodeSelector=selected)
    yield Attack("Pod, 2 x 115,000 nodeSelector keys, UPDATE", PODS, *both)
    for count in (2_000, 300_000):
        yield Attack(f"Pod, {count:,} labels", PODS, pod(_map(count)))
        yield Attack(f"Pod, {count:,} reserved labels", PODS, pod(_map(count, "a.coreweave.cloud/k", "")))
    yield Attack("Pod, 2 x 250,000 labels, UPDATE", PODS, pod(_map(250_000)), pod(_map(250_000)))
    yield Attack("Pod, a label key of 3 MiB", PODS, pod({"qos.coreweave.cloud/" + "i" * 3 * _MIB: "true"}))
    keys = {f"qos.coreweave.cloud/{number}{'i' * 30_000}": "true" for number in range(100)}
    yield Attack("Pod, 100 reserved label keys of 30 KB", PODS, pod(keys))
    for count in (2_000, 150_000):
        yield Attack(f"Pod, {count:,} annotations of ours", PODS, pod(SPOT, _map(count, "spotgate.dev/k")))
    yield Attack("Pod, an annotation key of 3 MiB", PODS, pod({}, {"spotgate.dev/" + "k" * 3 * _MIB: ""}))
    yield Attack("Pod, 3 MiB of spotgate.dev/keep", PODS, pod(SPOT, {"spotgate.dev/keep": "a," * (3 * _MIB // 2)}))
    reason = {"spotgate.dev/break-glass": "\\u00a0" * (_MIB // 2)}
    yield Attack("Pod, a break-glass reason of 3 MiB", PODS, pod(RESERVED, reason))
    yield Attack("Pod, nested 100,000 deep", PODS, pod(SPOT, x="DEEP"))
    for count in (12_500, 14_000):
        yield Attack(f"Pod, {count:,} x 240 nested lists", PODS, pod(SPOT, x=[_nested(240)] * count))
    escaped = pod(SPOT, x="<" * (3 * _MIB // 2))
    yield Attack("Pod, 2 x 1.5 MiB that Go escapes, UPDATE", PODS, escaped, escaped)
    yield Attack("Deployment, 200,000 numbers with exponents", DEPLOYMENTS, deployment(x=[1e308] * 200_000))
    yield Attack("Pod, 2,300,000 empty maps", PODS, pod(SPOT, x=[{}] * 2_300_000))


def _constraints() -> Iterator[Attack]:
    for terms, requirement_count in ((1, 249), (125, 1), (100, 100), (1000, 30), (30_000, 1)):
        requirements = [_in(f"k{number}", ["a"]) for number in range(requirement_count)]
        affinity = _affinity([requirements] * terms)
        yield Attack(f"Pod on spot, {terms:,} x {requirement_count:,} requirements", PODS, pod(SPOT, affinity=affinity))
    same = _affinity([[{"key": "team", "operator": "NotIn", "values": [f"v{n}"]} for n in range(249)]])
    yield Attack("Pod on spot, 249 requirements on one key", PODS, pod(SPOT, affinity=same))
    for count in (5_000, 200_000):
        hosts = [f"node-{number}" for number in range(count)]
        affinity = _affinity([[{"key": POOL_LABEL, "operator": "NotIn", "values": hosts}]])
        yield Attack(f"Pod on spot, {count:,} values of a requirement", PODS, pod(SPOT, affinity=affinity))
    affinity = _affinity([[_in(POOL_LABEL, ["a"])]] * 100)
    both = pod(SPOT, affinity=affinity, nodeSelector=_map(250))
    yield Attack("Pod on spot, 100 terms and 250 nodeSelector keys", PODS, both)
    for count in (250, 30_000):
        preferred = [{"weight": 1, "preference": {"matchExpressions": [_in("a", ["b"])]}}] * count
        prefer = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        labels = {"spotgate.dev/capacity": "spot-preferred"}
        yield Attack(f"Pod on spot, {count:,} preferred terms", PODS, pod(labels, affinity=prefer))
    for count in (250, 70_000):
        tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]
        yield Attack(f"Pod on spot, {count:,} tolerations", PODS, pod(SPOT, tolerations=tolerations))


def _pod_parts() -> Iterator[Attack]:
    for count in (1_000, 60_000):
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            yield Attack(f"Pod on spot, {count:,} {kind}", PODS, _with_containers(kind, count))
    yield Attack("Pod on spot, 700,000 empty containers", PODS, pod(SPOT, containers=[{}] * 700_000))
    for count in (5_000, 150_000):
        limits = [{"name": "a", "resources": {"limits": _map(count, value="1")}}]
        yield Attack(f"Pod on spot, {count:,} resource limits", PODS, pod(SPOT, containers=limits))
    variables = [{"name": "a", "env": [{"name": f"V{number}", "value": "x"} for number in range(90_000)]}]
    yield Attack("Pod on spot, 90,000 variables", PODS, pod(SPOT, containers=variables))
    ports = [{"name": "a", "ports": [{"containerPort": 1}] * 140_000}]
    yield Attack("Pod on spot, 140,000 ports", PODS, pod(SPOT, containers=ports))
    script = {"exec": {"command": ["sh", "-c", "sleep 1;" * (3 * _MIB // 8)]}}
    hooks = [{"name": "a", "image": "a" * 3 * _MIB, "lifecycle": {"preStop": script}}]
    yield Attack("Pod on spot, an image and a script of 3 MiB", PODS, pod(SPOT, containers=hooks))
    for count, mount_count in ((1_000, 30_000), (10_000, 50_000)):
        volumes = [{"name": f"data{number}", "emptyDir": {}} for number in range(count)]
        mounts = [{"name": f"data{number}", "mountPath": f"/{number}"} for number in range(mount_count)]
        value = pod(SPOT, containers=[{"name": "a", "volumeMounts": mounts}], volumes=volumes)
        yield Attack(f"Pod on spot, {count:,} volumes, {mount_count:,} mounts", PODS, value)
    owned = pod(SPOT)
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "A", "name": "n", "uid": "u"}] * 60_000
    yield Attack("Pod on spot, 60,000 ownerReferences", PODS, owned)


def _pools() -> Iterator[Attack]:
    for count in (50, 200, 5_000):
        yield Attack(f"NodePool, {count:,} budgets", KARPENTER, karpenter(budgets=_budgets(count)))
    for count, values in ((1_000, 1), (5, 1_000), (100, 2_000), (20_000, 1)):
        requirements = _requirements(count, values)
        yield Attack(f"NodePool, {count:,} requirements of {values:,} values", KARPENTER, karpenter(requirements))
    for count in (1_000, 20_000):
        same = [{"key": "a", "operator": "NotIn", "values": [f"v{number}"]} for number in range(count)]
        yield Attack(f"NodePool, {count:,} requirements on one key", KARPENTER, karpenter(same))
    for count in (900, 5_000, 90_000):
        types = _in("node.kubernetes.io/instance-type", [f"m{number}.xlarge" for number in range(count)])
        yield Attack(f"NodePool, {count:,} instance types", KARPENTER, karpenter([types]))
    for name, schedule in (("a cron of 1 MiB", "0," * (_MIB // 2) + "0 0 * * *"), ("3 MiB as a cron", "0" * 3 * _MIB)):
        budgets = [{"nodes": "0", "schedule": schedule, "duration": "1h"}]
        yield Attack(f"NodePool, {name}", KARPENTER, karpenter(budgets=budgets))
    for count in (1_000, 15_000):
        both = (_pool(ASO, resources=[1] * size) for size in (count, count - 1))
        yield Attack(f"Azure pool, {count:,} resources, UPDATE", ASO, *both)
    numbers = [{"type": "t", "count": 1e308}] * 5_000
    yield Attack("GKE pool, 5,000 accelerators", GKE, _pool(GKE, nodeConfig={"guestAccelerator": numbers}))
    yield Attack("NodePool, 10,000 budgets of a number", KARPENTER, karpenter(budgets=[{"nodes": 1}] * 10_000))
    for schedule in ("0 9 * * *", "@every 1s"):
        budgets = [{"nodes": "0", "schedule": schedule, "duration": "9" * 70_000 + "h"}] * 50
        yield Attack(f"NodePool, 50 durations of 70,000 digits, {schedule}", KARPENTER, karpenter(budgets=budgets))
    hours = karpenter(terminationGracePeriod="1h" * _MIB)
    yield Attack("NodePool, a duration of 1,048,576 parts", KARPENTER, hours)
    for count in (1_000, 50_000):
        taints = [{"key": f"k{number}", "value": "v", "effect": "NoSchedule"} for number in range(count)]
        yield Attack(f"NodePool, {count:,} taints", KARPENTER, karpenter(taints=taints))
        yield Attack(f"NodePool, {count:,} labels", KARPENTER, karpenter(labels=_map(count)))
        yield Attack(f"NodePool, {count:,} limits", KARPENTER, karpenter(limits=_map(count, value="1")))
    yield Attack("NodePool, 2,300,000 empty maps", KARPENTER, karpenter(x=[{}] * 2_300_000))
    for count in (1_000, 8_000, 100_000):
        yield Attack(f"CKS NodePool, {count:,} labels and taints", CKS, cks(count))
    yield Attack("CKS NodePool, 2 x 8,000 labels and taints, UPDATE", CKS, cks(8_000), cks(7_999))
    yield Attack("CKS NodePool, an instance type of 3 MiB", CKS, cks(1, "b" * 3 * _MIB))


def _workloads() -> Iterator[Attack]:
    for groups, keys in ((2, 125), (100, 1_000)):
        value = ray(groups, nodeSelector=_map(keys))
        yield Attack(f"RayCluster, {groups:,} groups of {keys:,} nodeSelector keys", RAY, value)
    for groups in (128, 2_000):
        yield Attack(f"RayCluster, {groups:,} groups", RAY, ray(groups))
    yield Attack("RayCluster, 128 groups, UPDATE", RAY, ray(128), ray(128, nodeSelector={"a": "b"}))
    yield Attack("RayCluster, 128 groups of 24 KB, UPDATE", RAY, *(ray(128, x="x" * 24_000 + end) for end in "ab"))
    yield Attack("RayCluster, 20 groups of 1,000 containers", RAY, ray(20, containers=_containers(1000)))
    yield Attack("RayCluster, 200 groups of 100 tolerations", RAY, ray(200, tolerations=[{"key": "a"}] * 100))
    selected = deployment(nodeSelector=_map(115_000))
    yield Attack("Deployment, 115,000 nodeSelector keys", DEPLOYMENTS, selected)
    yield Attack("Deployment, 115,000 nodeSelector keys, UPDATE", DEPLOYMENTS, selected, deployment())
    variables = ([{"name": f"V{number}", "value": end} for number in range(25_000)] for end in "ab")
    both = (deployment(containers=[{"name": "a", "env": env}]) for env in variables)
    yield Attack("Deployment, 25,000 variables, UPDATE", DEPLOYMENTS, *both)
    yield Attack("Deployment, 2,300,000 empty maps", DEPLOYMENTS, deployment(x=[{}] * 2_300_000))


PODS: Final = "pods"
POOL_LABEL: Final = "compute.coreweave.com/node-pool"
KARPENTER: Final = "nodepools.karpenter.sh"
CKS: Final = "nodepools.compute.coreweave.com"
RAY: Final = "rayclusters.ray.io"
DEPLOYMENTS: Final = "deployments.apps"
ASO: Final = "azureasomanagedmachinepools.infrastructure.cluster.x-k8s.io"
GKE: Final = "containernodepools.container.cnrm.cloud.google.com"
SPOT: Final = {"spotgate.dev/capacity": "spot"}
RESERVED: Final = {"qos.coreweave.cloud/interruptible": "true"}


def _nested(depth: int) -> list[object]:
    nested: list[object] = []
    for _ in range(depth - 1):
        nested = [nested]
    return nested


def _map(count: int, key: str = "k", value: str = "v") -> dict[str, str]:
    return {f"{key}{number}": value for number in range(count)}


def _in(key: str, values: list[str]) -> Json:
    return {"key": key, "operator": "In", "values": values}


def _affinity(terms: list[list[Json]]) -> Json:
    selector = {"nodeSelectorTerms": [{"matchExpressions": requirements} for requirements in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def _containers(count: int) -> list[Json]:
    return [{"name": f"c{number}", "resources": {"limits": {"cpu": "1"}}} for number in range(count)]


def _requirements(count: int, values: int) -> list[Json]:
    return [_in(f"k{number}", [f"v{value}" for value in range(values)]) for number in range(count)]


def _budgets(count: int) -> list[Json]:
    return [{"nodes": str(n + 1), "schedule": f"{n % 60} {n // 60 % 24} * * *", "duration": "1h"} for n in range(count)]


def pod(labels: Json | None = None, annotations: Json | None = None, **spec: object) -> Json:
    """Return a Pod with these labels, annotations, and fields of the spec."""
    metadata = {"name": "x", "namespace": "team-a", "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": _containers(1), **spec}}


def _with_containers(kind: str, count: int) -> Json:
    value = pod(SPOT)
    value["spec"][kind] = _containers(count)
    return value


def karpenter(
    requirements: Sequence[Json] = (),
    *,
    budgets: Sequence[Json] = (),
    labels: Json | None = None,
    limits: Json | None = None,
    **spec: object,
) -> Json:
    """Return a Karpenter NodePool."""
    capacity = _in("karpenter.sh/capacity-type", ["spot"])
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "x"},
        "spec": {
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {"requirements": [capacity, *requirements], **spec},
            },
            "limits": limits or {},
            "disruption": {"budgets": list(budgets)},
        },
    }


def _pool(resource: str, **spec: object) -> Json:
    kind = {ASO: ("v1beta1", "AzureASOManagedMachinePool"), GKE: ("v1beta1", "ContainerNodePool")}[resource]
    version = f"{resource.partition('.')[2]}/{kind[0]}"
    return {"apiVersion": version, "kind": kind[1], "metadata": {"name": "x", "namespace": "a"}, "spec": spec}


def cks(count: int, instance: str = "gd-8xh100ib-i128") -> Json:
    """Return a CoreWeave NodePool."""
    taints = [{"key": f"k{number}", "value": "v", "effect": "NoSchedule"} for number in range(count // 2)]
    spec = {"instanceType": instance, "targetNodes": 1, "nodeLabels": _map(count), "nodeTaints": taints}
    spec["lifecycle"] = {"class": "spot"}
    kind = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool"}
    return {**kind, "metadata": {"name": "x"}, "spec": spec}


def ray(groups: int, **spec: object) -> Json:
    """Return a RayCluster with this many groups of workers."""
    template = {"metadata": {"labels": SPOT}, "spec": {"containers": _containers(1), **spec}}
    workers = [{"groupName": f"g{number}", "replicas": 1, "template": template} for number in range(groups)]
    kind = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "x", "namespace": "team-a"}}
    return {**kind, "spec": {"workerGroupSpecs": workers}}


def deployment(**spec: object) -> Json:
    """Return a Deployment."""
    template = {"metadata": {"labels": SPOT}, "spec": {"containers": _containers(1), **spec}}
    kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "team-a"}}
    return {**kind, "spec": {"replicas": 3, "template": template}}


def review(attack: Attack) -> bytes:
    """Return the admission review of the request."""
    obj, old = attack.object, attack.old
    plural, _, group = attack.resource.partition(".")
    version = obj["apiVersion"].rpartition("/")[2]
    request = {
        "uid": "u",
        "operation": "CREATE" if old is None else "UPDATE",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "namespace": obj["metadata"].get("namespace", ""),
        "name": "x",
        "userInfo": {"username": "mallory", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
    }
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return body.replace(b"<", b"\\u003c").replace(b'"DEEP"', b"[" * 100_000 + b"]" * 100_000)


def hostile(bundle: Bundle, view: ClusterView, judged: Iterable[Attack]) -> Section:
    """Evaluate each attack in both phases, and keep the slower one."""
    rows = []
    for attack in judged:
        data = review(attack)
        taken = []
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory
        before = _memory("VmRSS")
        for phase in Phase:
            start = process_time()
            with suppress(BadReviewError):  # spotgate rejects a review that is nested too deeply
                Case(name=attack.title, phase=phase, data=data, bundle=bundle, view=view).answer()
            taken.append((process_time() - start) * 1000)
        peak = _memory("VmHWM")
        gc.collect()
        rows.append((attack.title, len(data) / 1024, max(taken), peak - before, _memory("VmRSS") - before))
    return Section(
        title="Hostile requests",
        columns=("request", "KiB", "CPU ms", "MiB while evaluated", "MiB kept"),
        rows=rows,
        note="CPU time of one call in the slower phase. Memory excludes the body itself.",
    )


def _memory(field: str) -> float:
    """Return a memory size of this process in MiB."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else 0.0
