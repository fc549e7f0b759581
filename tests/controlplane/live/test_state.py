"""The view of `LiveState` as a real cluster changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import node_pool
from tests.controlplane.harness.live import HASTE, PROVIDERS, admin, elsewhere, following, names, until
from tests.controlplane.harness.populate import CRDS, wait_for_crds
from webhook.cluster.api import Api
from webhook.cluster.live import LiveState

if TYPE_CHECKING:
    from tests.controlplane.harness.cluster import Cluster


# The contents of a view


@pytest.mark.usefixtures("bare_pools")
async def test_a_synced_view_has_every_object_of_the_cluster(bare_cluster: Cluster) -> None:
    async with following(admin(bare_cluster)) as state:
        assert state.why_not_synced() == ""
        assert names(state.view()) == ["cpu-control-plane", "cpu-spot", "h100", "h100-spot"]
        assert state.view().namespaces["spotgate-system"] == {"kubernetes.io/metadata.name": "spotgate-system"}
        assert state.view().providers == {"cks"}
        assert state.silence() < 30


async def test_a_view_follows_a_pool_from_creation_to_deletion(bare_cluster: Cluster) -> None:
    async with following(admin(bare_cluster)) as state:
        assert names(state.view()) == []
        bare_cluster.kubectl.apply(node_pool("blue"))
        await until(lambda: names(state.view()) == ["blue"])
        bare_cluster.kubectl.apply(node_pool("blue", computeClass="spot"))
        await until(lambda: [pool.spot for pool in state.view().pools or ()] == [True])
        bare_cluster.kubectl("delete", "nodepools.compute.coreweave.com", "blue")
        await until(lambda: names(state.view()) == [])


async def test_a_view_follows_a_namespace_from_creation_to_deletion(bare_cluster: Cluster) -> None:
    # Without controllers its deletion would never finish.
    bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}}
    async with following(admin(bare_cluster)) as state:
        bare_cluster.kubectl.apply(bare)
        await until(lambda: "blue" in state.view().namespaces)
        bare_cluster.kubectl("label", "namespace", "blue", "spotgate.dev/capacity=spot")
        await until(lambda: state.view().namespaces["blue"].get("spotgate.dev/capacity") == "spot")
        bare_cluster.kubectl("delete", "namespace", "blue", "--wait=false")
        empty = json.dumps(bare | {"spec": {"finalizers": []}})
        bare_cluster.kubectl("replace", "--raw=/api/v1/namespaces/blue/finalize", "--filename=-", documents=empty)
        await until(lambda: "blue" not in state.view().namespaces)


async def test_unchanged_pools_stay_the_same_tuple_while_other_objects_change(bare_cluster: Cluster) -> None:
    # Rules cache their results by this tuple.
    bare_cluster.kubectl.apply(node_pool("blue"))
    async with following(admin(bare_cluster)) as state:
        before = state.view()
        bare_cluster.kubectl("annotate", "nodepools.compute.coreweave.com", "blue", "example.com/seen=yes")
        bare_cluster.kubectl("create", "namespace", "green")
        await until(lambda: "green" in state.view().namespaces)
        assert (await state.fresh()).pools is state.view().pools is before.pools
    bare_cluster.kubectl("delete", "nodepools.compute.coreweave.com", "blue")


async def test_a_view_has_the_providers_the_oldest_kubelet_and_the_server_version(
    bare_cluster: Cluster,
) -> None:
    def node(name: str, kubelet: str, **labels: str) -> dict[str, Any]:
        metadata = {"name": name, "labels": labels}
        info = dict.fromkeys(
            (
                "architecture",
                "bootID",
                "containerRuntimeVersion",
                "kernelVersion",
                "kubeProxyVersion",
                "machineID",
                "operatingSystem",
                "osImage",
                "systemUUID",
            ),
            "",
        )
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "status": {"nodeInfo": info | {"kubeletVersion": kubelet}},
        }

    async with following(admin(bare_cluster)) as state:
        assert state.view().providers == set()
        assert state.view().oldest_kubelet is None
        bare_cluster.kubectl.apply(node("new", "v1.37.2"), node("old", "v1.33.12-gke.100"))
        await until(lambda: state.view().oldest_kubelet == (1, 33))
        assert state.view().providers == set()
        bare_cluster.kubectl("label", "node", "new", "compute.coreweave.com/node-pool=blue")
        await until(lambda: state.view().providers == {"cks"})
        bare_cluster.kubectl("delete", "node", "old", "new")
        await until(lambda: state.view().providers == set())
        version = json.loads(bare_cluster.kubectl("get", "--raw=/version"))
        assert state.view().api_server == (int(version["major"]), int(version["minor"]))


# Fresh


@pytest.mark.usefixtures("bare_pools")
async def test_a_fresh_view_lacks_a_deleted_pool_that_the_copy_still_has(bare_cluster: Cluster) -> None:
    async with following(admin(bare_cluster)) as state:
        bare_cluster.kubectl("delete", "nodepools.compute.coreweave.com", "h100")
        assert "h100" in names(state.view())
        fresh = await state.fresh()
        assert "h100" not in names(fresh)
        assert fresh.namespaces == state.view().namespaces


@pytest.mark.usefixtures("bare_pools")
async def test_a_fresh_view_works_without_a_copy(bare_cluster: Cluster) -> None:
    api = await Api.connect(admin(bare_cluster))
    state = LiveState(api, PROVIDERS, HASTE)
    assert state.view().pools is None
    assert "h100" in names(await state.fresh())
    await api.close()


# Resources that come and go


def machine_pools() -> dict[str, Any]:
    crd: dict[str, Any] = yaml.safe_load((CRDS / "coreweave.yaml").read_text())
    crd["metadata"]["name"] = "machinepools.example.com"
    crd["spec"]["group"] = "example.com"
    crd["spec"]["scope"] = "Namespaced"
    crd["spec"]["names"] = {"kind": "MachinePool", "singular": "machinepool", "plural": "machinepools"}
    crd["spec"]["versions"][0]["name"] = "v1"
    return crd


async def test_a_missing_resource_has_no_pools_until_it_is_installed(
    bare_cluster: Cluster,
) -> None:
    providers = elsewhere(group="example.com", resource="machinepools", kind="MachinePool", versions=["v2", "v1"])
    async with following(admin(bare_cluster), providers) as state:
        assert names(state.view()) == names(await state.fresh()) == []
        bare_cluster.kubectl.apply(machine_pools())
        wait_for_crds(bare_cluster.kubectl)
        pool = node_pool("blue") | {"apiVersion": "example.com/v1", "kind": "MachinePool"}
        bare_cluster.kubectl.apply(pool, arguments=("--namespace=default",))
        assert names(await state.fresh()) == ["blue"]
        await until(lambda: names(state.view()) == ["blue"])
        bare_cluster.kubectl("delete", "crd", "machinepools.example.com")
        await until(lambda: names(state.view()) == [])
        assert names(await state.fresh()) == []
