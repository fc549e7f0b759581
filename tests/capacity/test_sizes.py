"""Pools whose size another object declares, readers that share a resource, and the clusters of pools."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.builders import pool_of
from tests.rules.conftest import PROVIDERS, shipped_provider, with_fields
from tests.specs import spec_of
from webhook.capacity.providers.joins import join, merge_pools, sizes_in, with_size, with_template
from webhook.capacity.providers.pool import Pool, Size
from webhook.capacity.providers.provider import Provider, readers_by_resource, sizers_by_resource
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.schema import CapacityProviderSpec

EKS, GKE, AKS, KARPENTER = map(shipped_provider, ("eks", "gke", "aks", "karpenter"))
(SIZERS,) = sizers_by_resource([EKS, GKE, AKS]).values()
POOL_KINDS = ("AWSManagedMachinePool", "GCPManagedMachinePool", "AzureManagedMachinePool")


def machine_pool(kind: str = POOL_KINDS[0], replicas: object = None, **annotations: str) -> dict[str, Any]:
    """Return a MachinePool of Cluster API's v1beta2."""
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "infra-a"}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachinePool",
        "metadata": {"name": "a", "namespace": "fleet", "annotations": annotations},
        "spec": {
            "clusterName": "workload-1",
            "template": {"spec": {"clusterName": "workload-1", "infrastructureRef": reference}},
            **({} if replicas is None else {"replicas": replicas}),
        },
    }


def fleet_pool(kind: str = POOL_KINDS[0], **fields: Any) -> Pool:
    return pool_of("infra-a", provider="eks", kind=kind, namespace="fleet", **fields)


@pytest.mark.parametrize("kind", POOL_KINDS)
@pytest.mark.parametrize(("written", "desired"), [(3, 3), (0, 0), (None, 1)])
def test_a_machine_pool_sets_the_size_of_the_pool_that_it_references(kind: str, written: object, desired: int) -> None:
    (size,) = sizes_in(machine_pool(kind, written), SIZERS)
    by, pool_id = ("MachinePool", "fleet", "a"), (kind, "fleet", "infra-a")
    assert size == Size(by, pool_id, desired, autoscaling=False, cluster="fleet/workload-1")
    (pool,) = join([(size,), fleet_pool(kind)]).pools
    assert (pool.desired, pool.size, pool.autoscaling, pool.cluster) == (desired, size, False, "fleet/workload-1")


def test_a_machine_pool_of_an_unknown_infrastructure_kind_sets_no_size() -> None:
    assert sizes_in(machine_pool("DockerMachinePool", 3), SIZERS) == ()


@pytest.mark.parametrize(
    "other",
    [
        fleet_pool("AzureManagedMachinePool"),
        replace(fleet_pool(), namespace="elsewhere"),
        replace(fleet_pool(), name="another"),
    ],
)
def test_a_machine_pool_sets_the_size_of_no_other_pool(other: Pool) -> None:
    assert join([other, sizes_in(machine_pool(replicas=3), SIZERS)]).pools == (other,)


def test_a_pool_whose_replicas_an_autoscaler_manages_is_autoscaled() -> None:
    value = machine_pool(replicas=0, **{"cluster.x-k8s.io/replicas-managed-by": "external-autoscaler"})
    sizes = sizes_in(value, SIZERS)
    (bounded,) = join([sizes, fleet_pool(maximum=5)]).pools
    (unbounded,) = join([sizes, fleet_pool()]).pools
    (closed,) = join([sizes, fleet_pool(maximum=0)]).pools
    assert (bounded.unusable, unbounded.unusable) == ("", "")
    assert closed.unusable == "it is autoscaled to at most 0 nodes"


@pytest.mark.parametrize("replicas", ["3", True, {"a": 1}, 1.5])
def test_invalid_replicas_leave_the_size_unknown(replicas: object) -> None:
    (pool,) = join([fleet_pool(), sizes_in(machine_pool(replicas=replicas), SIZERS)]).pools
    assert pool.unusable == "its number of nodes is unknown"


def test_a_pool_is_being_deleted_if_its_machine_pool_is() -> None:
    value = machine_pool(replicas=3)
    value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (pool,) = join([fleet_pool(), sizes_in(value, SIZERS)]).pools
    assert pool.unusable == "it is being deleted"
    assert not with_size(pool, None).deleting
    (own,) = join([fleet_pool(deleting=True), sizes_in(machine_pool(replicas=3), SIZERS)]).pools
    assert own.deleting
    assert with_size(own, None).deleting


def test_a_pool_has_the_machines_of_its_template() -> None:
    machines: dict[str, Any] = {"instance_type": "gb200", "gpu_type": "b200", "gpu_count": 4, "superchip": True}
    template = pool_of("template", zones=frozenset("a"), problems=("it is odd",), **machines)
    whole = with_template(fleet_pool(), template)
    assert {field: getattr(whole, field) for field in machines} == machines
    assert (whole.zones, whole.problems) == (template.zones, (f"{template}: it is odd",))
    assert with_template(replace(whole, deleting=True), template).deleting
    assert with_template(whole, None) == with_template(fleet_pool(), None)


def cluster_and_pool(cluster: dict[str, Any], reference: dict[str, str]) -> tuple[Pool, Pool]:
    of_cluster, of_pool = (
        next(reader for reader in GKE.readers if reader.kind == kind)
        for kind in ("ContainerCluster", "ContainerNodePool")
    )
    whole = {"metadata": {"name": "prod", "namespace": "infra", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    part = {"metadata": {"name": "a", "namespace": "infra"}, "spec": {"clusterRef": reference, "nodeCount": 1}}
    return of_cluster.read({**whole, "spec": {"initialNodeCount": 1, **cluster}}), of_pool.read(part)


PATH = "projects/p/locations/l/clusters"


@pytest.mark.parametrize(
    ("cluster", "reference", "gone"),
    [
        ({}, {"name": "prod"}, True),
        ({}, {"external": f"{PATH}/prod"}, True),
        ({}, {"name": "other"}, False),
        ({"resourceID": "prod-x", "location": "l"}, {"name": "prod"}, True),
        ({"resourceID": "prod-x", "location": "l"}, {"external": f"{PATH}/prod-x"}, True),
        ({"resourceID": "prod-x", "location": "l"}, {"external": f"{PATH}/prod"}, False),
        ({"resourceID": "prod-x", "location": "elsewhere"}, {"external": f"{PATH}/prod-x"}, False),
        ({"resourceID": "prod-x"}, {"name": "prod"}, True),
    ],
)
def test_a_pool_is_being_deleted_if_its_cluster_is(
    cluster: dict[str, Any], reference: dict[str, str], *, gone: bool
) -> None:
    pools = cluster_and_pool(cluster, reference)
    for order in (pools, pools[::-1]):
        assert {pool.name: pool.deleting for pool in join(order).pools} == {"prod": True, "a": gone}


def test_a_deleted_cluster_does_not_affect_pools_of_another_provider() -> None:
    whole, part = cluster_and_pool({}, {"name": "prod"})
    (_, pool) = join([whole, replace(part, provider="eks")]).pools
    assert not pool.deleting


def test_the_providers_name_of_a_cluster_can_identify_this_cluster() -> None:
    document = yaml.safe_load((PROVIDERS / "gke.yaml").read_text())
    spec = spec_of(CapacityProviderSpec, {**document["spec"], "thisCluster": f"{PATH}/prod-x"})
    reader = next(candidate for candidate in Provider.of("gke", spec).readers if candidate.kind == "ContainerCluster")
    here = reader.read({"metadata": {"name": "prod"}, "spec": {"resourceID": "prod-x", "location": "l"}})
    there = reader.read({"metadata": {"name": "prod"}, "spec": {"resourceID": "prod-x", "location": "m"}})
    assert (here.cluster, there.cluster) == ("", "prod")


def test_a_replaced_pool_keeps_the_size_from_its_machine_pool() -> None:
    (known,) = join([fleet_pool(), sizes_in(machine_pool(replicas=3), SIZERS)]).pools
    given, (resized,) = fleet_pool(maximum=9), join([fleet_pool(), sizes_in(machine_pool(replicas=1), SIZERS)]).pools
    new = replace(fleet_pool(), name="new")
    (merged, other) = merge_pools([known], [given, new])
    assert (merged.desired, merged.maximum, other) == (3, 9, new)
    assert merge_pools([known], [resized]) == (resized,)


def named(provider: Provider, name: str, when: str | None) -> Provider:
    (reader,) = provider.readers
    other = with_fields(reader, provider=name, when=None if when is None else Query(when))
    return with_fields(provider, name=name, readers=(other,))


ON_TENCENT = "spec.template.spec.nodeClassRef.group == 'karpenter.k8s.tke'"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("group", "reads"), [("karpenter.k8s.tke", "tke"), ("karpenter.k8s.aws", "karpenter"), (None, "karpenter")]
)
def test_a_condition_chooses_between_two_providers_of_one_resource(
    order: tuple[int, int], group: str | None, reads: str
) -> None:
    providers = [KARPENTER, named(KARPENTER, "tke", ON_TENCENT)]
    (readers,) = readers_by_resource(providers[index] for index in order).values()
    value = {"spec": {"template": {"spec": {"nodeClassRef": {"group": group}}}}}
    assert readers.read(value).provider == reads


def test_a_pool_that_meets_no_condition_is_still_read() -> None:
    (readers,) = readers_by_resource([named(KARPENTER, "tke", ON_TENCENT)]).values()
    assert readers.read({"spec": {}}).provider == "tke"


@pytest.mark.parametrize("this_cluster", ["prod", "infra/prod"])
def test_a_pool_of_this_cluster_has_no_cluster_name(this_cluster: str) -> None:
    spec = yaml.safe_load((PROVIDERS / "gke.yaml").read_text())["spec"] | {"thisCluster": this_cluster}
    readers = Provider.of("gke", spec_of(CapacityProviderSpec, spec)).readers
    value = {"metadata": {"name": "a", "namespace": "infra"}, "spec": {"clusterRef": {"name": "prod"}}}
    other = {"metadata": {"name": "a", "namespace": "infra"}, "spec": {"clusterRef": {"name": "test"}}}
    assert readers[0].read(value).cluster == ""
    assert readers[0].read(other).cluster == "infra/test"


@pytest.mark.parametrize("kind", POOL_KINDS)
@pytest.mark.parametrize(
    "annotation",
    ["cluster.x-k8s.io/replicas-managed-by", "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"],
)
def test_either_autoscaler_annotation_makes_a_pool_autoscaled(kind: str, annotation: str) -> None:
    (size,) = sizes_in(machine_pool(kind, 1, **{annotation: "5"}), SIZERS)
    assert size.autoscaling
