"""Taints of spot pools: which pools admit a Pod, and which taints it tolerates there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.builders import cks_pool, expression, other_pool, taint, view_of
from tests.capacity.requiring import ALL, ARCH, asking, landing, target
from tests.rules.placement import SPOT
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.capacity.providers.requirements import NO_REQUIREMENTS
from webhook.engine.bundle import load_bundle
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.capacity.providers.pool import Pool
    from webhook.kube.pod import Pod

OS = "kubernetes.io/os"
TPU, NVIDIA = "google.com/tpu=present:NoSchedule", "nvidia.com/gpu=present:NoSchedule"
CKS_POOL = "compute.coreweave.com/node-pool"


ON_EACH_CKS_POOL = "qos.coreweave.cloud/interruptable=true:NoExecute"


def tolerated(pod: Pod, *pools: Pool) -> list[str]:
    """Return the taints that the Pod tolerates, except the one that it always tolerates on CKS."""
    targeting = target(pod, *pools)
    assert isinstance(targeting, Target), targeting
    taints = {f"{toleration.key}={toleration.value}:{toleration.effect}" for toleration in targeting.tolerations}
    if any(pool.provider == "cks" for pool in targeting.pools or ()):
        taints.remove(ON_EACH_CKS_POOL)
    return sorted(taints)


@pytest.mark.parametrize(
    ("written", "means_spot"),
    [
        ("spot=true:NoSchedule", True),
        ("example.com/spot:NoExecute", True),
        ("lifecycle=Ec2Spot:NoSchedule", True),  # an example of eksctl
        ("spotInstance=yes:NoSchedule", True),
        ("capacity=PREEMPTIBLE:NoSchedule", True),
        ("interruptible=true:NoSchedule", True),
        ("example.com/Interruptable:NoSchedule", True),
        ("pool=evictable:NoSchedule", True),
        ("dedicated=payments:NoExecute", False),
        ("team=not-interruptible:NoSchedule", False),
        ("noSpot=true:NoSchedule", False),
        ("example.com/spot=never:NoSchedule", False),
        ("not-ready-spot=true:NoSchedule", True),  # a different word is negated
        ("team=hotspot:NoSchedule", False),  # a different word
        ("spotlight=on:NoSchedule", False),
        ("spot.example.com/dedicated=payments:NoSchedule", False),  # the domain names the taint's author
        ("os=windows:NoSchedule", False),  # Pods tolerate it themselves: kubernetes.io/docs/concepts/windows/user-guide
        ("sandbox.gke.io/runtime=gvisor:NoSchedule", False),
    ],
)
def test_a_taint_dedicates_its_pool_unless_a_word_in_it_means_spot(written: str, *, means_spot: bool) -> None:
    pool = cks_pool("a", gpu=False, taints=(written,))
    assert landing(asking(), pool) == (["a"] if means_spot else [])
    parsed = taint(written)
    assert tolerated(asking(), pool) == ([f"{parsed.key}={parsed.value}:{parsed.effect}"] if means_spot else [])


BATCH = "reclaimable=true:NoSchedule"


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ((("a", BATCH), ("b", BATCH)), ["a", "b"]),
        ((("a", BATCH),), []),  # one pool is no pattern
        ((("a", BATCH), ("b", "")), ["b"]),  # a spot pool lacks it
        (
            (("a", BATCH), ("b", BATCH), ("c", "dedicated=x:NoSchedule")),
            [],
        ),  # the zones of one team's pool look the same
        ((("a", BATCH), ("b", BATCH), ("on-demand", BATCH)), []),
        ((("a", BATCH), ("b", BATCH), ("on-demand", "")), ["a", "b"]),
    ],
)
def test_a_taint_of_all_spot_pools_and_no_on_demand_pool_means_spot(
    pools: tuple[tuple[str, str], ...], expected: list[str]
) -> None:
    shown = [
        cks_pool(name, gpu=False, spot=name != "on-demand", taints=(written,) if written else ())
        for name, written in pools
    ]
    assert landing(asking(), *shown) == expected


@pytest.mark.parametrize(
    "temporary",
    [
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        "readiness.k8s.io/network=pending:NoSchedule",
        "ebs.csi.aws.com/agent-not-ready:NoExecute",
        "ToBeDeletedByClusterAutoscaler=1:NoSchedule",
        "startup-taint.cluster-autoscaler.kubernetes.io/x:NoSchedule",
    ],
)
def test_a_temporary_taint_is_ignored(temporary: str) -> None:
    assert landing(asking(), cks_pool("a", gpu=False, taints=(temporary,))) == ["a"]
    assert tolerated(asking(), cks_pool("a", gpu=False, taints=(temporary,))) == []


@pytest.mark.parametrize("provider", ["aks", "karpenter"])
def test_the_taint_of_nodes_that_AKS_reclaims_is_ignored(provider: str) -> None:
    reclaimed = other_pool(
        ALL[provider], "a", gpu=Gpu.NO, taints=("remediator.kubernetes.azure.com/unschedulable:NoSchedule",)
    )
    assert landing(asking(), reclaimed) == ["a"]
    assert not any(toleration.startswith("remediator.") for toleration in tolerated(asking(), reclaimed))


PAYMENTS = cks_pool("payments", gpu=False, taints=("dedicated=payments:NoExecute", "spot=true:NoSchedule"))
OWN = [{"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (asking(), []),
        (asking(tolerations=OWN), ["spot=true:NoSchedule"]),
        (asking(named="payments"), ["dedicated=payments:NoExecute", "spot=true:NoSchedule"]),
        (asking(selector={CKS_POOL: "payments"}), ["dedicated=payments:NoExecute", "spot=true:NoSchedule"]),
        # One of the terms doesn't name the pool.
        (asking([expression(CKS_POOL, "In", "payments")], [expression("a", "Exists")]), []),
        (asking([expression(CKS_POOL, "NotIn", "other")]), []),
    ],
)
def test_a_dedicated_pool_admits_only_pods_that_tolerate_its_taint_or_name_it(pod: Pod, expected: list[str]) -> None:
    assert landing(pod, PAYMENTS) == (["payments"] if expected else [])
    assert tolerated(pod, PAYMENTS) == expected


def test_a_PreferNoSchedule_taint_excludes_no_pod_and_is_not_tolerated() -> None:
    pool = cks_pool("a", gpu=False, taints=("dedicated=payments:PreferNoSchedule",))
    assert landing(asking(), pool) == ["a"]
    assert tolerated(asking(), pool) == []


def requesting(resource: str) -> Pod:
    container = {"name": "app", "resources": {"limits": {resource: "4"}}}
    return decode_pod(msgspec.json.encode({"metadata": {"labels": SPOT}, "spec": {"containers": [container]}}))


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", ["gpu"]),
        ("nvidia.com/mig-1g.5gb", ["gpu"]),
        ("google.com/tpu", ["tpu"]),
        ("aws.amazon.com/neuron", []),  # GKE has no Neuron devices
        ("cpu", ["cpu"]),
    ],
)
def test_a_taint_named_after_an_accelerator_admits_pods_that_request_it(resource: str, expected: list[str]) -> None:
    gke = ALL["gke"]
    pools = (
        other_pool(gke, "cpu", gpu=Gpu.NO),
        other_pool(gke, "gpu", gpu=Gpu.YES, taints=(NVIDIA,)),
        other_pool(gke, "tpu", gpu=Gpu.YES, taints=(TPU,)),
    )
    assert landing(requesting(resource), *pools) == expected


def on(name: str, labels: dict[str, str], *taints: str) -> Pool:
    return other_pool(ALL["gke"], name, gpu=Gpu.NO, labels=labels, taints=taints)


PLATFORMS = (
    on("amd64", {ARCH: "amd64", OS: "linux"}),
    on("arm", {ARCH: "arm64", OS: "linux"}),
    on("windows", {ARCH: "amd64", OS: "windows"}),
    on("unknown", {}),
)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (asking(), ["amd64", "unknown"]),
        (asking(selector={ARCH: "arm64"}), ["arm", "unknown"]),
        (asking(selector={"beta.kubernetes.io/arch": "arm64"}), ["arm", "unknown"]),
        (asking([expression(ARCH, "In", "amd64", "arm64")]), ["amd64", "arm", "unknown"]),
        (asking([expression(ARCH, "NotIn", "s390x")]), ["amd64", "arm", "unknown"]),
        (asking([expression(ARCH, "Exists")]), ["amd64", "unknown"]),
        (asking([expression(ARCH, "In", "arm64")], [expression("a", "Exists")]), ["amd64", "arm", "unknown"]),
        (asking([expression(ARCH, "Exists")], [expression("a", "Exists")]), ["amd64", "unknown"]),
        (asking(selector={OS: "windows"}), ["unknown", "windows"]),
        (asking(os={"name": "windows"}), ["unknown", "windows"]),
        (asking(os={"name": "linux"}, selector={ARCH: "arm64"}), ["arm", "unknown"]),
        (asking(named="arm"), ["arm"]),
        (asking(selector={"cloud.google.com/gke-nodepool": "arm"}), ["arm"]),
        (asking(os={"name": "linux"}, named="windows"), []),
    ],
)
def test_windows_and_arm_pools_admit_only_pods_that_request_or_name_them(pod: Pod, expected: list[str]) -> None:
    assert landing(pod, *PLATFORMS) == expected


def test_an_architecture_taint_is_tolerated_for_pods_that_select_the_architecture() -> None:
    """GKE adds this taint to Arm pools, and the toleration to Pods that select the architecture.

    Source: https://cloud.google.com/kubernetes-engine/docs/how-to/prepare-arm-workloads-for-deployment
    """
    pool = on("arm", {}, "kubernetes.io/arch=arm64:NoSchedule")
    other = on("amd64", {ARCH: "amd64"})
    assert landing(asking(), pool, other) == ["amd64"]
    assert landing(asking(selector={ARCH: "amd64"}), pool, other) == ["amd64"]
    assert "kubernetes.io/arch=arm64:NoSchedule" in tolerated(asking(selector={ARCH: "arm64"}), pool)


ARM = on("arm", {ARCH: "arm64"}, "kubernetes.io/arch=arm64:NoSchedule")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), ["arm"]),
        ((other_pool(ALL["gke"], "paid", capacity=CapacityType.ON_DEMAND, labels={ARCH: "arm64"}),), ["arm"]),
        ((other_pool(ALL["gke"], "paid", capacity=CapacityType.ON_DEMAND, labels={ARCH: "amd64"}),), []),
        ((on("unknown", {}),), ["unknown"]),
    ],
)
def test_all_pods_run_on_arm_if_all_pools_of_the_cluster_are_arm(others: tuple[Pool, ...], expected: list[str]) -> None:
    assert landing(asking(), ARM, *others) == expected
    assert ("kubernetes.io/arch=arm64:NoSchedule" in tolerated(asking(), ARM, *others)) is ("arm" in expected)


@pytest.mark.parametrize(
    ("machine", "pod", "expected"),
    [
        ("c4a-standard-8", asking(selector={ARCH: "arm64"}), "kubernetes.io/arch=arm64:NoSchedule"),
        ("ct5lp-hightpu-4t", requesting("google.com/tpu"), TPU),
        ("a2-highgpu-1g", requesting("nvidia.com/gpu"), NVIDIA),
        ("a2-highgpu-1g", requesting("google.com/tpu"), None),
    ],
)
def test_taints_that_GKE_adds_to_a_pool_count_as_its_taints(machine: str, pod: Pod, expected: str | None) -> None:
    reader = next(candidate for candidate in ALL["gke"].readers if candidate.kind == "ContainerNodePool")
    pool = reader.read({"metadata": {"name": "a"}, "spec": {"nodeConfig": {"machineType": machine, "spot": True}}})
    assert landing(pod, pool) == (["a"] if expected else [])
    assert expected is None or expected in tolerated(pod, pool)


@pytest.mark.parametrize(
    ("provider", "types", "architecture"),
    [
        ("eks", ("m7g.large", "c6gn.xlarge", "im4gn.large", "a1.large"), "arm64"),
        ("eks", ("m7i.large", "g4dn.xlarge", "p4de.24xlarge", "c7i-flex.large"), "amd64"),
        ("eks", ("m7g.large", "m7i.large"), ""),
        ("eks", ("unknown.large",), ""),
        ("aks", ("Standard_D4ps_v5", "Standard_B2pls_v2", "Standard_E4pds_v6"), "arm64"),
        ("aks", ("Standard_D4s_v5", "Standard_NP10s", "Standard_NC24ads_A100_v4"), "amd64"),
        ("gke", ("t2a-standard-1", "c4a-highmem-4", "n4a-standard-2", "e4a-standard-8"), "arm64"),
        ("gke", ("t2d-standard-1", "c4d-standard-4", "ek-standard-8"), "amd64"),
        ("cks", ("cd-gp-a192-genoa", "gd-8xh100ib-i128"), "amd64"),
    ],
)
def test_the_architecture_of_instance_types(provider: str, types: tuple[str, ...], architecture: str) -> None:
    assert ALL[provider].machines.architecture(types, NO_REQUIREMENTS) == architecture


POLICY = """
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: spot-placement}
spec:
  spotTaints: [{key: reclaimable}]
"""


def test_a_spot_taint_of_one_policy_means_spot_for_all_policies(tmp_path: Path) -> None:
    (tmp_path / "placement.yaml").write_text(POLICY)
    pool = cks_pool("a", gpu=False, taints=(BATCH,))
    both = other_pool(ALL["karpenter"], "b", capacity=CapacityType.BOTH, gpu=Gpu.NO, taints=(BATCH,))
    providers = load_bundle([tmp_path]).providers
    targeting = target_of(asking(), {}, view_of(pool, both), providers)
    assert isinstance(targeting, Target)
    assert [nodes.pool.name for nodes in targeting.nodes if nodes.pool] == ["a", "b"]
