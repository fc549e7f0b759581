"""What `LiveState` knows of a real cluster, through everything that happens to clusters and connections."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.controlplane.cluster import Cluster, start_cluster
from tests.controlplane.populate import CRDS, POOLS
from webhook.bundle import SHIPPED, load_bundle
from webhook.capacity.compile import compile_provider
from webhook.cluster import source
from webhook.cluster.api import Api, ApiError, UnusableCredentialsError
from webhook.cluster.live import LiveState
from webhook.cluster.mirror import Pace
from webhook.policy.facts import CapacityProviderSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from webhook.capacity.provider import Provider
    from webhook.cluster.protocol import ClusterView

RBAC = Path(__file__).parents[2] / "manifests" / "base" / "rbac.yaml"
PROVIDERS = {"cks": load_bundle().providers["cks"]}
PATIENCE = 30.0
"""Seconds after which a test gives up waiting for what must happen."""

HASTE = Pace(first=0.05, most=0.3, steady=1)


@pytest.fixture(scope="module")
def own(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """An etcd and an API server for this file, with CKS' NodePools."""
    with start_cluster(binaries, controllers=False) as running:
        running.kubectl("create", "namespace", "spotgate-system")
        running.kubectl("apply", f"--filename={CRDS / 'coreweave.yaml'}")
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield running


@pytest.fixture
def pools(own: Cluster) -> Iterator[None]:
    own.kubectl("apply", f"--filename={POOLS}")
    yield
    own.kubectl("delete", "nodepools.compute.coreweave.com", "--all")


@asynccontextmanager
async def following(
    kubeconfig: Path, providers: Mapping[str, Provider] = PROVIDERS, *, synced: bool = True
) -> AsyncIterator[LiveState]:
    api = await Api.connect(kubeconfig)
    state = LiveState(api, providers, HASTE)
    run = asyncio.create_task(state.run())
    try:
        if synced:
            async with asyncio.timeout(PATIENCE):
                await state.synced()
        yield state
    finally:
        run.cancel()
        await asyncio.wait([run])
        await api.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for is elsewhere
            await asyncio.sleep(0.02)


def admin(own: Cluster) -> Path:
    return own.credentials.kubeconfig("admin")


def names(view: ClusterView) -> list[str]:
    assert view.pools is not None, view.why_unknown
    return [pool.name for pool in view.pools]


def node_pool(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 1, **spec},
    }


def account(own: Cluster, name: str, *verbs: str) -> Path:
    """The kubeconfig of a new ServiceAccount that may read Namespaces and Nodes, and NodePools with these verbs."""
    own.kubectl("create", "serviceaccount", name, "--namespace=spotgate-system")
    own.kubectl("create", "clusterrole", name, "--verb=list,watch", "--resource=namespaces,nodes")
    own.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount=spotgate-system:{name}"
    )
    if verbs:
        grant(own, name, *verbs)
    return own.as_service_account("spotgate-system", name).kubeconfig


def grant(own: Cluster, name: str, *verbs: str) -> None:
    own.kubectl.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces", "nodes"], "verbs": ["list", "watch"]},
                {"apiGroups": ["compute.coreweave.com"], "resources": ["nodepools"], "verbs": verbs},
            ],
        },
        arguments=("--server-side", "--force-conflicts"),
    )


# What is there


@pytest.mark.usefixtures("pools")
async def test_everything_that_is_there_is_known_once_it_is_synced(own: Cluster) -> None:
    async with following(admin(own)) as state:
        assert state.why_not_synced() == ""
        assert names(state.view()) == ["cpu-control-plane", "cpu-spot", "h100", "h100-spot"]
        assert state.view().namespaces["spotgate-system"] == {"kubernetes.io/metadata.name": "spotgate-system"}
        assert state.view().providers == {"cks"}
        assert state.silence() < PATIENCE


async def test_a_pool_appears_changes_and_vanishes(own: Cluster) -> None:
    async with following(admin(own)) as state:
        assert names(state.view()) == []
        own.kubectl.apply(node_pool("blue"))
        await until(lambda: names(state.view()) == ["blue"])
        own.kubectl.apply(node_pool("blue", computeClass="spot"))
        await until(lambda: [pool.spot for pool in state.view().pools or ()] == [True])
        own.kubectl("delete", "nodepools.compute.coreweave.com", "blue")
        await until(lambda: names(state.view()) == [])


async def test_a_namespace_appears_changes_and_vanishes(own: Cluster) -> None:
    # Without controllers nobody would finish its deletion.
    bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}}
    async with following(admin(own)) as state:
        own.kubectl.apply(bare)
        await until(lambda: "blue" in state.view().namespaces)
        own.kubectl("label", "namespace", "blue", "spotgate.dev/capacity=spot")
        await until(lambda: state.view().namespaces["blue"].get("spotgate.dev/capacity") == "spot")
        own.kubectl("delete", "namespace", "blue", "--wait=false")
        empty = json.dumps(bare | {"spec": {"finalizers": []}})
        own.kubectl("replace", "--raw=/api/v1/namespaces/blue/finalize", "--filename=-", documents=empty)
        await until(lambda: "blue" not in state.view().namespaces)


async def test_the_same_pools_stay_the_same_tuple_while_other_things_change(own: Cluster) -> None:
    # Rules remember by it what they have worked out.
    own.kubectl.apply(node_pool("blue"))
    async with following(admin(own)) as state:
        before = state.view()
        own.kubectl("annotate", "nodepools.compute.coreweave.com", "blue", "example.com/seen=yes")
        own.kubectl("create", "namespace", "green")
        await until(lambda: "green" in state.view().namespaces)
        assert (await state.fresh()).pools is state.view().pools is before.pools
    own.kubectl("delete", "nodepools.compute.coreweave.com", "blue")


async def test_nodes_show_their_provider_and_the_oldest_kubelet_and_the_api_server_its_version(own: Cluster) -> None:
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

    async with following(admin(own)) as state:
        assert state.view().providers == set()
        assert state.view().oldest_kubelet is None
        own.kubectl.apply(node("new", "v1.36.3"), node("old", "v1.33.12-gke.100"))
        await until(lambda: state.view().oldest_kubelet == (1, 33))
        assert state.view().providers == set()
        own.kubectl("label", "node", "new", "compute.coreweave.com/node-pool=blue")
        await until(lambda: state.view().providers == {"cks"})
        own.kubectl("delete", "node", "old", "new")
        await until(lambda: state.view().providers == set())
        version = json.loads(own.kubectl("get", "--raw=/version"))
        assert state.view().api_server == (int(version["major"]), int(version["minor"]))


@pytest.mark.usefixtures("pools")
async def test_more_objects_than_fit_in_one_answer_are_all_read(own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_PAGE", 3)
    async with following(admin(own)) as state:
        assert len(names(state.view())) == len(names(await state.fresh())) == 4


# Fresh


@pytest.mark.usefixtures("pools")
async def test_a_fresh_view_lacks_what_was_just_deleted_when_the_copy_still_has_it(own: Cluster) -> None:
    async with following(admin(own)) as state:
        own.kubectl("delete", "nodepools.compute.coreweave.com", "h100")
        assert "h100" in names(state.view())
        fresh = await state.fresh()
        assert "h100" not in names(fresh)
        assert fresh.namespaces == state.view().namespaces


@pytest.mark.usefixtures("pools")
async def test_a_fresh_view_needs_no_copy(own: Cluster) -> None:
    api = await Api.connect(admin(own))
    state = LiveState(api, PROVIDERS, HASTE)
    assert state.view().pools is None
    assert "h100" in names(await state.fresh())
    await api.close()


# Resources that come and go


def elsewhere(**changes: Any) -> dict[str, Provider]:
    """A provider whose pools are another resource than CKS'."""
    spec = yaml.safe_load((SHIPPED / "providers" / "cks.yaml").read_text())["spec"]
    spec["nodePools"][0] |= changes
    return {"cks": compile_provider("cks", CapacityProviderSpec.model_validate(spec))}


def machine_pools() -> dict[str, Any]:
    crd: dict[str, Any] = yaml.safe_load((CRDS / "coreweave.yaml").read_text())
    crd["metadata"]["name"] = "machinepools.example.com"
    crd["spec"]["group"] = "example.com"
    crd["spec"]["scope"] = "Namespaced"
    crd["spec"]["names"] = {"kind": "MachinePool", "singular": "machinepool", "plural": "machinepools"}
    crd["spec"]["versions"][0]["name"] = "v1"
    return crd


async def test_a_resource_that_the_cluster_lacks_has_no_pools_and_is_found_when_it_is_installed(own: Cluster) -> None:
    providers = elsewhere(group="example.com", resource="machinepools", kind="MachinePool", versions=["v2", "v1"])
    async with following(admin(own), providers) as state:
        assert names(state.view()) == names(await state.fresh()) == []
        own.kubectl.apply(machine_pools())
        own.kubectl("wait", "--for=condition=Established", "crd/machinepools.example.com", "--timeout=60s")
        pool = node_pool("blue") | {"apiVersion": "example.com/v1", "kind": "MachinePool"}
        own.kubectl.apply(pool, arguments=("--namespace=default",))
        assert names(await state.fresh()) == ["blue"]
        await until(lambda: names(state.view()) == ["blue"])
        own.kubectl("delete", "crd", "machinepools.example.com")
        await until(lambda: names(state.view()) == [])
        assert names(await state.fresh()) == []


async def test_what_is_not_there_need_not_be_permitted(own: Cluster) -> None:
    providers = elsewhere(group="compute.coreweave.com", resource="otherpools")
    async with following(account(own, "frugal"), providers) as state:
        assert names(state.view()) == names(await state.fresh()) == []


# Permissions


@pytest.mark.usefixtures("pools")
@pytest.mark.parametrize(("given", "lacking"), [(["watch"], "list"), (["list"], "watch")])
async def test_a_verb_that_is_not_permitted_makes_the_pools_unknown_until_it_is(
    own: Cluster, given: list[str], lacking: str
) -> None:
    name = f"without-{lacking}"
    async with following(account(own, name, *given), synced=False) as state:
        await until(lambda: "403" in state.why_not_synced())
        why = (
            "nodepools.compute.coreweave.com can't be read: 403 Forbidden: nodepools.compute.coreweave.com is "
            f'forbidden: User "system:serviceaccount:spotgate-system:{name}" cannot {lacking} resource "nodepools" in '
            'API group "compute.coreweave.com" at the cluster scope'
        )
        assert state.why_not_synced() == why
        view = state.view()
        assert (view.pools, view.why_unknown) == (None, f"{why}.")
        assert view.remedy == "allow spotgate's ServiceAccount to list and watch nodepools.compute.coreweave.com"
        assert ((await state.fresh()).pools is None) == (lacking == "list")
        grant(own, name, "list", "watch")
        async with asyncio.timeout(PATIENCE):
            await state.synced()
        assert "h100" in names(state.view())


@pytest.mark.usefixtures("pools")
async def test_a_permission_that_is_taken_away_makes_fresh_pools_unknown(own: Cluster) -> None:
    async with following(account(own, "demoted", "list", "watch")) as state:
        grant(own, "demoted", "get")
        who = "--as=system:serviceaccount:spotgate-system:demoted"
        await until(lambda: own.kubectl.run("auth", "can-i", "list", "nodepools.compute.coreweave.com", who).returncode)
        view = await state.fresh()
        assert view.pools is None
        assert "cannot list resource" in view.why_unknown
        assert "spotgate-system" in view.namespaces


@pytest.mark.usefixtures("pools")
async def test_the_shipped_cluster_role_is_enough(own: Cluster) -> None:
    own.kubectl("apply", f"--filename={RBAC}", "--namespace=spotgate-system")
    user = own.as_service_account("spotgate-system", "spotgate")
    async with following(user.kubeconfig, load_bundle().providers) as state:
        assert "h100" in names(state.view())
        assert names(await state.fresh()) == names(state.view())
        assert "default" in state.view().namespaces
        assert state.view().api_server is not None


def test_the_shipped_cluster_role_names_every_node_pool_that_the_shipped_policies_read() -> None:
    role = next(each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == "ClusterRole")
    may = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    read = {(reader.group, reader.resource) for reader in load_bundle().readers}
    assert {(*resource, verb) for resource in read for verb in ("list", "watch")} <= may


# Credentials


@pytest.mark.usefixtures("pools")
async def test_credentials_that_are_exchanged_for_better_ones_are_taken_up(own: Cluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    own.credentials.write_kubeconfig(kubeconfig, {"token": "expired"})
    async with following(kubeconfig, synced=False) as state:
        await until(lambda: "401 Unauthorized" in state.why_not_synced())
        assert state.view().remedy == "give spotgate credentials that the API server accepts"
        own.credentials.write_kubeconfig(kubeconfig, {"token": own.credentials.tokens["admin"]})
        async with asyncio.timeout(PATIENCE):
            await state.synced()
        assert "h100" in names(await state.fresh())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("", ""),
        ("just a text", ""),
        ("{a: [", "while parsing"),
        ("{apiVersion: v1, kind: Config}", "current-context"),
    ],
    ids=["missing", "empty", "text", "no YAML", "no context"],
)
async def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    if text is not None:
        kubeconfig.write_text(text)
    start = re.escape(f"{kubeconfig}: can't be used to reach an API server: ")
    with pytest.raises(UnusableCredentialsError, match=f"^{start}.*{why}"):
        await Api.connect(kubeconfig)


async def test_outside_of_a_cluster_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UnusableCredentialsError, match=r"^the Pod's ServiceAccount: can't be used .* not set"):
        await Api.connect(None)


# The API server goes away


def etcd(own: Cluster, call: str, **body: object) -> Any:
    """A call to etcd itself: what happens while no API server looks."""
    url = next(flag for flag in own.processes["etcd"].command if flag.startswith("--listen-client-urls="))
    connection = http.client.HTTPConnection(url.partition("://")[2], timeout=10)
    connection.request("POST", f"/v3/kv/{call}", json.dumps(body))
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


@pytest.mark.usefixtures("pools")
async def test_while_the_api_server_is_away_the_last_copy_holds_and_afterwards_what_was_missed_is_seen(
    own: Cluster,
) -> None:
    async with following(admin(own)) as state:
        own.processes["kube-apiserver"].kill()
        async with following(admin(own), synced=False) as newcomer:
            await until(lambda: "Cannot connect" in newcomer.why_not_synced())
            fresh = await state.fresh()
            assert fresh.pools is None
            assert "Cannot connect to host" in fresh.why_unknown
            assert "default" in fresh.namespaces
            assert newcomer.view().pools is None
            assert "h100" in names(state.view())

            # A pool vanishes, and etcd forgets that it did: no watch can go on from what it saw last.
            key = base64.b64encode(b"/registry/compute.coreweave.com/nodepools/h100").decode()
            gone = etcd(own, "deleterange", key=key)
            assert gone["deleted"] == "1"
            etcd(own, "compaction", revision=gone["header"]["revision"], physical=True)
            own.restart("kube-apiserver")

            async with asyncio.timeout(PATIENCE):
                await newcomer.synced()
            await until(lambda: "h100" not in names(state.view()))
            assert names(state.view()) == names(newcomer.view()) == names(await state.fresh())


@pytest.mark.usefixtures("pools")
async def test_a_copy_from_which_the_api_server_can_not_go_on_is_made_anew(own: Cluster) -> None:
    api = await Api.connect(admin(own))
    (mirror,) = LiveState(api, PROVIDERS, HASTE)._pools
    # What the API server remembers of NodePools begins with their CRD, long after its first revision.
    mirror._version, mirror._resource_version = "v1alpha1", "1"
    with pytest.raises(ApiError, match=r"^410 Gone: .*too old") as caught:
        await mirror._follow()
    assert caught.value.status == http.HTTPStatus.GONE
    run = asyncio.create_task(mirror.run())
    await until(lambda: ("", "h100") in mirror.items)
    assert mirror.problem is None
    run.cancel()
    await asyncio.wait([run])
    await api.close()
