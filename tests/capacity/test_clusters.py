"""Which cluster a pool belongs to, and which pools can be its fallback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.rules.conftest import shipped_provider, with_fields
from webhook.capacity.placement.fallback import Coverage, Fallbacks
from webhook.capacity.providers.joins import cluster_of, join, same_cluster, sizes_in

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool

PROVIDERS = {name: shipped_provider(name) for name in ("aks", "eks", "gke")}
READERS = {reader.kind: reader for provider in PROVIDERS.values() for reader in provider.readers}
PATH = "projects/p/locations/us-east1/clusters/prod"
ARM = "/subscriptions/s/resourceGroups/Fleet/providers/Microsoft.ContainerService/managedClusters/Prod"


def read_pool(kind: str, spec: dict[str, Any], name: str = "a", namespace: str = "infra", **metadata: Any) -> Pool:
    return READERS[kind].read({"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec})


def gke(reference: dict[str, str], *, spot: bool = False, **more: Any) -> Pool:
    config = {"spot": spot, "machineType": "g2-standard-8", "guestAccelerator": [{"type": "nvidia-l4", "count": 1}]}
    return read_pool("ContainerNodePool", {"clusterRef": reference, "nodeCount": 1, "nodeConfig": config}, **more)


def eks(**spec: Any) -> Pool:
    return read_pool("Nodegroup", {"instanceTypes": ["p5.48xlarge"], **spec})


def aks(owner: dict[str, str], **more: Any) -> Pool:
    return read_pool("ManagedClustersAgentPool", {"owner": owner, "vmSize": "Standard_D4s_v5"}, **more)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (gke({"name": "prod"}), gke({"external": PATH}), True),
        (gke({"external": PATH}), gke({"external": f"https://container.googleapis.com/v1/{PATH}"}), True),
        (gke({"external": PATH}), gke({"external": f"//container.googleapis.com/{PATH}/"}), True),
        (gke({"external": PATH}), gke({"external": PATH}, namespace="elsewhere"), True),
        (gke({"external": PATH}), gke({"external": PATH.replace("us-east1", "us-west1")}), False),
        (gke({"external": PATH}), gke({"external": PATH.replace("prod", "test")}), False),
        (gke({"name": "test"}), gke({"external": PATH}), False),
        (gke({"name": "prod"}, namespace="elsewhere"), gke({"external": PATH}), False),
        (gke({"name": "prod", "namespace": "infra"}, namespace="elsewhere"), gke({"external": PATH}), True),
        (aks({"name": "prod"}), aks({"armId": ARM}), True),
        (aks({"armId": ARM.upper()}), aks({"armId": ARM}), True),
        (aks({"armId": ARM}), aks({"armId": ARM.replace("Fleet", "Other")}), False),
        (eks(clusterName="prod"), eks(clusterRef={"from": {"name": "prod"}}), True),
        (eks(clusterName="prod"), eks(clusterRef={"from": {"name": "prod", "namespace": "infra"}}), True),
        (eks(clusterName="prod"), eks(clusterRef={"from": {"name": "prod", "namespace": "elsewhere"}}), False),
        (gke({"name": "prod"}), gke({}), False),
        (gke({"external": "///"}, name="b"), gke({"external": "///"}), False),
    ],
)
def test_different_references_to_a_cluster_are_equal(one: Pool, other: Pool, *, same: bool) -> None:
    assert same_cluster(one, other) is same
    assert same_cluster(other, one) is same


def test_an_empty_path_is_a_problem() -> None:
    odd = gke({"external": "///"})
    assert odd.problems == ("spec.clusterRef.external is not the name of a cluster",)
    assert odd.cluster == "infra/? of a"


@pytest.mark.parametrize(
    "this", ["prod", "infra/prod", PATH, f"https://container.googleapis.com/v1/{PATH}", PATH.upper()]
)
def test_this_cluster_can_be_named_in_every_way(this: str) -> None:
    assert cluster_of(PATH, "infra", this) == ("", "")
    assert cluster_of(PATH, "infra", "") == ("infra/prod", PATH)


@pytest.mark.parametrize("this", ["test", "elsewhere/prod", PATH.replace("us-east1", "us-west1"), "infra", "/"])
def test_a_different_name_is_a_different_cluster(this: str) -> None:
    assert cluster_of(PATH, "infra", this) == ("infra/prod", PATH)
    assert cluster_of("prod", "infra", this) == ("infra/prod", "")


@pytest.mark.parametrize(
    ("paid", "why"),
    [
        (gke({"external": PATH}), ""),
        (gke({"name": "prod"}), ""),
        (gke({"external": "projects/p/locations/l/clusters/test"}), "it belongs to cluster projects/p/locations/l/clusters/test"),
    ],
)  # fmt: skip
def test_a_fallback_must_be_in_the_same_cluster(paid: Pool, why: str) -> None:
    fallbacks = Fallbacks("gpu", {}, PROVIDERS)
    for reference in ({"name": "prod"}, {"external": PATH}):
        spot = gke(reference, spot=True, name="spot")
        assert fallbacks.why_not(spot, paid, "gpu") == why
        worse = fallbacks.lost_coverage([spot, paid], [spot, replace(paid, desired=0)])
        assert [lost.coverage for lost in worse] == ([] if why else [Coverage.NONE])


KINDS = ("AWSManagedMachinePool", "AzureManagedMachinePool", "GCPManagedMachinePool")


@pytest.mark.parametrize("kind", KINDS)
def test_the_label_or_machine_pool_of_a_cluster_API_pool_determines_its_cluster(kind: str) -> None:
    reference = {"kind": kind, "name": "a"}
    template = {"spec": {"infrastructureRef": reference}}
    machine_pool = {
        "metadata": {"name": "m", "namespace": "infra"},
        "spec": {"clusterName": "prod", "replicas": 2, "template": template},
    }
    labelled = read_pool(kind, {}, labels={"cluster.x-k8s.io/cluster-name": "prod"})
    sizers = [reader.sizer for reader in READERS.values() if reader.sizer is not None]
    (bare,) = join([read_pool(kind, {}), sizes_in(machine_pool, sizers)]).pools
    assert (bare.cluster, labelled.cluster) == ("infra/prod", "infra/prod")
    assert join([labelled, sizes_in(machine_pool, sizers)]).pools[0].cluster == "infra/prod"

    here = [with_fields(sizer, this_cluster="prod") for sizer in sizers]
    assert join([read_pool(kind, {}), sizes_in(machine_pool, here)]).pools[0].cluster == ""


@given(st.text("ab/:", max_size=6), st.sampled_from(("", "a", "a/b")), st.text("ab/", max_size=4))
def test_parsing_any_cluster_name_never_raises(written: str, namespace: str, this: str) -> None:
    name, path = cluster_of(written, namespace, this)
    assert (path == "") or "/" in written
    assert (name, path) == ("", "") or name.endswith(written.strip("/").rpartition("/")[2])
