"""What taints of spot pools mean for a Pod: which pools it lands on, and what it tolerates there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.builders import cks_pool, expression, other_pool, taint, view_of
from tests.capacity.requiring import ALL, ARCH, asking, landing, target
from tests.rules.placement import SPOT
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.engine.bundle import load_bundle
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.capacity.providers.pool import Pool
    from webhook.kube.pod import Pod

OS = "kubernetes.io/os"
TPU, NVIDIA = "google.com/tpu=present:NoSchedule", "nvidia.com/gpu=present:NoSchedule"
CKS_POOL = "compute.coreweave.com/node-pool"


def tolerated(pod: Pod, *pools: Pool) -> list[str]:
    found = target(pod, *pools)
    assert isinstance(found, Target), found
    return sorted(f"{each.key}={each.value}:{each.effect}" for each in found.tolerations)


@pytest.mark.parametrize(
    ("written", "means_spot"),
    [
        ("spot=true:NoSchedule", True),
        ("example.com/spot:NoExecute", True),
        ("lifecycle=Ec2Spot:NoSchedule", True),  # eksctl's own examples
        ("spotInstance=yes:NoSchedule", True),
        ("capacity=PREEMPTIBLE:NoSchedule", True),
        ("interruptible=true:NoSchedule", True),
        ("pool=evictable:NoSchedule", True),
        ("dedicated=payments:NoExecute", False),
        ("team=not-interruptible:NoSchedule", False),
        ("noSpot=true:NoSchedule", False),
        ("example.com/spot=never:NoSchedule", False),
        ("not-ready-spot=true:NoSchedule", True),  # another word is negated
        ("team=hotspot:NoSchedule", False),  # another word
        ("spotlight=on:NoSchedule", False),
        ("spot.example.com/dedicated=payments:NoSchedule", False),  # the domain says who wrote it
        ("os=windows:NoSchedule", False),  # Pods tolerate it themselves: kubernetes.io/docs/concepts/windows/user-guide
        ("sandbox.gke.io/runtime=gvisor:NoSchedule", False),
    ],
)
def test_a_taint_dedicates_unless_a_word_of_its_name_or_value_says_spot(written: str, *, means_spot: bool) -> None:
    pool = cks_pool("a", gpu=False, taints=(written,))
    assert landing(asking(), pool) == (["a"] if means_spot else [])
    each = taint(written)
    assert tolerated(asking(), pool) == ([f"{each.key}={each.value}:{each.effect}"] if means_spot else [])


BATCH = "reclaimable=true:NoSchedule"


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ((("a", BATCH), ("b", BATCH)), ["a", "b"]),
        ((("a", BATCH),), []),  # one pool is no pattern
        ((("a", BATCH), ("b", "")), ["b"]),  # there are spot pools without it
        ((("a", BATCH), ("b", BATCH), ("c", "dedicated=x:NoSchedule")), []),  # zones of one team's pool look so too
        ((("a", BATCH), ("b", BATCH), ("on-demand", BATCH)), []),
        ((("a", BATCH), ("b", BATCH), ("on-demand", "")), ["a", "b"]),
    ],
)
def test_a_taint_of_all_spot_pools_and_no_other_means_spot(
    pools: tuple[tuple[str, str], ...], expected: list[str]
) -> None:
    shown = [
        cks_pool(name, gpu=False, spot=name != "on-demand", taints=(written,) if written else ())
        for name, written in pools
    ]
    assert landing(asking(), *shown) == expected


@pytest.mark.parametrize(
    "passing",
    [
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        "readiness.k8s.io/network=pending:NoSchedule",
        "ebs.csi.aws.com/agent-not-ready:NoExecute",
        "ToBeDeletedByClusterAutoscaler=1:NoSchedule",
        "startup-taint.cluster-autoscaler.kubernetes.io/x:NoSchedule",
    ],
)
def test_a_taint_that_passes_neither_keeps_out_nor_is_tolerated(passing: str) -> None:
    assert landing(asking(), cks_pool("a", gpu=False, taints=(passing,))) == ["a"]
    assert tolerated(asking(), cks_pool("a", gpu=False, taints=(passing,))) == []


@pytest.mark.parametrize("provider", ["aks", "karpenter"])
def test_a_node_that_AKS_is_taking_back_is_not_sought(provider: str) -> None:
    taken = other_pool(
        ALL[provider], "a", gpu=Gpu.NO, taints=("remediator.kubernetes.azure.com/unschedulable:NoSchedule",)
    )
    assert landing(asking(), taken) == ["a"]
    assert not any(each.startswith("remediator.") for each in tolerated(asking(), taken))


PAYMENTS = cks_pool("payments", gpu=False, taints=("dedicated=payments:NoExecute", "spot=true:NoSchedule"))
OWN = [{"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (asking(), []),
        (asking(tolerations=OWN), ["spot=true:NoSchedule"]),
        (asking(named="payments"), ["dedicated=payments:NoExecute", "spot=true:NoSchedule"]),
        (asking(selector={CKS_POOL: "payments"}), ["dedicated=payments:NoExecute", "spot=true:NoSchedule"]),
        # One of its terms does not name the pool.
        (asking([expression(CKS_POOL, "In", "payments")], [expression("a", "Exists")]), []),
        (asking([expression(CKS_POOL, "NotIn", "other")]), []),
    ],
)
def test_a_dedicated_pool_is_for_those_who_tolerate_it_or_name_it(pod: Pod, expected: list[str]) -> None:
    assert landing(pod, PAYMENTS) == (["payments"] if expected else [])
    assert tolerated(pod, PAYMENTS) == expected


def test_a_taint_that_only_discourages_keeps_nobody_out_and_is_not_tolerated() -> None:
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
        ("aws.amazon.com/neuron", []),  # GKE has none
        ("cpu", ["cpu"]),
    ],
)
def test_a_taint_named_after_an_accelerator_is_for_pods_that_request_that_one(
    resource: str, expected: list[str]
) -> None:
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
        (asking([expression(ARCH, "In", "arm64")], [expression("a", "Exists")]), ["amd64", "unknown"]),
        (asking(selector={OS: "windows"}), ["unknown", "windows"]),
        (asking(os={"name": "windows"}), ["unknown", "windows"]),
        (asking(os={"name": "linux"}, selector={ARCH: "arm64"}), ["arm", "unknown"]),
        (asking(named="arm"), ["arm"]),
        (asking(selector={"cloud.google.com/gke-nodepool": "arm"}), ["arm"]),
        (asking(os={"name": "linux"}, named="windows"), []),
    ],
)
def test_windows_and_arm_are_for_pods_that_say_so_or_name_the_pool(pod: Pod, expected: list[str]) -> None:
    assert landing(pod, *PLATFORMS) == expected


def test_a_taint_that_restates_the_architecture_is_tolerated_by_those_who_say_it() -> None:
    """GKE taints Arm pools so, and lets Pods that select the architecture tolerate it.

    Source: https://cloud.google.com/kubernetes-engine/docs/how-to/prepare-arm-workloads-for-deployment
    """
    pool = on("arm", {}, "kubernetes.io/arch=arm64:NoSchedule")
    assert landing(asking(), pool) == []
    assert landing(asking(selector={ARCH: "amd64"}), pool) == []
    assert "kubernetes.io/arch=arm64:NoSchedule" in tolerated(asking(selector={ARCH: "arm64"}), pool)


@pytest.mark.parametrize(
    ("machine", "pod", "expected"),
    [
        ("t2a-standard-4", asking(), None),
        ("c4a-standard-8", asking(selector={ARCH: "arm64"}), "kubernetes.io/arch=arm64:NoSchedule"),
        ("ct5lp-hightpu-4t", requesting("google.com/tpu"), TPU),
        ("a2-highgpu-1g", requesting("nvidia.com/gpu"), NVIDIA),
        ("a2-highgpu-1g", requesting("google.com/tpu"), None),
    ],
)
def test_taints_that_GKE_sets_itself_count_though_no_pool_declares_them(
    machine: str, pod: Pod, expected: str | None
) -> None:
    reader = next(each for each in ALL["gke"].readers if each.kind == "ContainerNodePool")
    pool = reader.read({"metadata": {"name": "a"}, "spec": {"nodeConfig": {"machineType": machine, "spot": True}}})
    assert landing(pod, pool) == (["a"] if expected else [])
    assert expected is None or expected in tolerated(pod, pool)


@pytest.mark.parametrize(
    ("provider", "types", "architecture"),
    [
        ("eks", ("m7g.large", "c6gn.xlarge", "im4gn.large", "a1.large"), "arm64"),
        ("eks", ("m7i.large", "g4dn.xlarge", "p4de.24xlarge", "c7i-flex.large"), "amd64"),
        ("eks", ("m7g.large", "m7i.large"), ""),
        ("eks", ("nobody-knows.large",), ""),
        ("aks", ("Standard_D4ps_v5", "Standard_B2pls_v2", "Standard_E4pds_v6"), "arm64"),
        ("aks", ("Standard_D4s_v5", "Standard_NP10s", "Standard_NC24ads_A100_v4"), "amd64"),
        ("gke", ("t2a-standard-1", "c4a-highmem-4", "n4a-standard-2"), "arm64"),
        ("gke", ("t2d-standard-1", "c4d-standard-4"), "amd64"),
        ("cks", ("cd-gp-a192-genoa",), ""),  # nobody lists them
    ],
)
def test_the_architecture_of_instance_types(provider: str, types: tuple[str, ...], architecture: str) -> None:
    assert ALL[provider].machines.architecture(types, None) == architecture


POLICY = """
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: spot-placement}
spec:
  spotTaints: [{key: reclaimable}]
"""


def test_taints_that_a_policy_names_mean_spot_for_all_policies(tmp_path: Path) -> None:
    (tmp_path / "placement.yaml").write_text(POLICY)
    pool = cks_pool("a", gpu=False, taints=(BATCH,))
    both = other_pool(ALL["karpenter"], "b", capacity=CapacityType.BOTH, gpu=Gpu.NO, taints=(BATCH,))
    providers = load_bundle([tmp_path]).providers
    found = target_of(asking(), {}, view_of(pool, both), providers)
    assert isinstance(found, Target)
    assert [nodes.pool.name for nodes in found.nodes if nodes.pool] == ["a", "b"]
