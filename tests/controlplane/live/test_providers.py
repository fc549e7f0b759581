"""Node pools of every supported kind: a real cluster and files give the same pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.controlplane.harness.cluster import UNFAIR, start_cluster
from tests.controlplane.harness.live import admin, following, until
from tests.controlplane.harness.populate import CRDS, wait_for_crds
from webhook.engine.bundle import load_bundle
from webhook.inputs.state import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.view import ClusterView

STATES = CRDS.parents[2] / "golden" / "state"
PROVIDERS = load_bundle().providers


def node_pools() -> list[dict[str, Any]]:
    """Return the pools of the golden reviews' clusters and the objects with their sizes, in the versions of the CRDs."""
    documents = [
        document
        for name in ("karpenter.yaml", "fleet.yaml")
        for document in yaml.safe_load_all((STATES / name).read_text())
        if document["kind"] not in {"Namespace", "Node"}
    ]
    older = {"cluster.x-k8s.io/v1beta2": "cluster.x-k8s.io/v1beta1"}
    return [
        document | {"apiVersion": older.get(document["apiVersion"], document["apiVersion"])} for document in documents
    ]


@pytest.fixture(scope="module")
def every_kind(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield an API server with the CRDs of every kind of node pool."""
    with start_cluster(binaries, UNFAIR, controllers=False) as running:
        running.kubectl("apply", f"--filename={CRDS}")
        wait_for_crds(running.kubectl)
        running.kubectl("create", "namespace", "fleet")
        running.kubectl.apply(*node_pools())
        yield running


def seen(view: ClusterView) -> dict[tuple[str, ...], tuple[object, ...]]:
    def facts(pool: Pool) -> tuple[object, ...]:
        return pool.capacity, pool.gpu, pool.cluster, pool.desired, pool.taints, pool.grace_seconds, pool.unusable

    return {pool.identity: facts(pool) for pool in view.pools or ()}


async def test_pools_of_every_kind_are_the_same_as_from_files(every_kind: Cluster, tmp_path: Path) -> None:
    (tmp_path / "state.yaml").write_text(yaml.safe_dump_all(node_pools()))
    from_files = FileState([tmp_path], PROVIDERS).view()
    async with following(admin(every_kind), PROVIDERS) as state:
        assert {pool.kind for pool in state.view().pools or ()} == {
            "NodePool",
            "ContainerNodePool",
            "AWSManagedMachinePool",
            "ManagedClustersAgentPool",
        }
        assert seen(state.view()) == seen(await state.fresh()) == seen(from_files)
        assert state.view().providers == from_files.providers == {"karpenter"}


async def test_scaling_a_machine_pool_resizes_its_pool(every_kind: Cluster) -> None:
    def desired(view: ClusterView) -> int | None:
        return next(pool.desired for pool in view.pools or () if pool.kind == "AWSManagedMachinePool")

    async with following(admin(every_kind), PROVIDERS) as state:
        assert desired(state.view()) == 0
        every_kind.kubectl("scale", "machinepools.cluster.x-k8s.io", "gpu", "--namespace=fleet", "--replicas=2")
        await until(lambda: desired(state.view()) == 2)
        assert desired(await state.fresh()) == 2
        every_kind.kubectl("scale", "machinepools.cluster.x-k8s.io", "gpu", "--namespace=fleet", "--replicas=0")
        await until(lambda: desired(state.view()) == 0)


async def test_a_machine_deployment_has_its_templates_machines_once_the_template_exists(every_kind: Cluster) -> None:
    metadata = {"name": "web", "namespace": "fleet"}
    deployment = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": metadata,
        "spec": {"template": {"spec": {"infrastructureRef": {"kind": "AWSMachineTemplate", "name": "web"}}}},
    }
    template = {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": "AWSMachineTemplate",
        "metadata": metadata,
        "spec": {"template": {"spec": {"instanceType": "m7i.large", "spotMarketOptions": {}}}},
    }

    def capacities(view: ClusterView) -> list[str]:
        return [pool.capacity for pool in view.pools or () if pool.kind == "MachineDeployment"]

    async with following(admin(every_kind), PROVIDERS) as state:
        try:
            every_kind.kubectl.apply(deployment)
            await until(lambda: capacities(state.view()) == ["unknown"])
            every_kind.kubectl.apply(template)
            await until(lambda: capacities(state.view()) == ["spot"])
            fresh = await state.fresh()
            assert capacities(fresh) == ["spot"]
            assert [template.kind for template in fresh.templates] == ["AWSMachineTemplate"]
        finally:
            every_kind.kubectl("delete", "machinedeployments.cluster.x-k8s.io", "web", "--namespace=fleet")
