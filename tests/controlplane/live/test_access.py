"""Access of `LiveState` to a real API server, and its state on missing permissions, bad credentials, and failures."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from tests.controlplane.harness.live import HASTE, PATIENCE, PROVIDERS, admin, elsewhere, following, names, stop, until
from webhook.capacity.view import UnusableCredentialsError
from webhook.cluster.api import Api, ApiError
from webhook.cluster.live import LiveState
from webhook.engine.bundle import load_bundle

if TYPE_CHECKING:
    from tests.controlplane.harness.cluster import Cluster

RBAC = Path(__file__).parents[3] / "manifests" / "base" / "rbac.yaml"


def account(bare_cluster: Cluster, name: str, *verbs: str) -> Path:
    """Return the kubeconfig of a new ServiceAccount that may read Namespaces and Nodes, and has these verbs for NodePools."""
    bare_cluster.kubectl("create", "serviceaccount", name, "--namespace=spotgate-system")
    bare_cluster.kubectl("create", "clusterrole", name, "--verb=list,watch", "--resource=namespaces,nodes")
    bare_cluster.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount=spotgate-system:{name}"
    )
    if verbs:
        grant(bare_cluster, name, *verbs)
    return bare_cluster.as_service_account("spotgate-system", name).kubeconfig


def grant(bare_cluster: Cluster, name: str, *verbs: str) -> None:
    bare_cluster.kubectl.apply(
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


# Permissions


@pytest.mark.usefixtures("bare_pools")
@pytest.mark.parametrize(("given", "lacking"), [(["watch"], "list"), (["list"], "watch")])
async def test_pools_are_unknown_until_all_verbs_are_permitted(
    bare_cluster: Cluster, given: list[str], lacking: str
) -> None:
    name = f"without-{lacking}"
    async with following(account(bare_cluster, name, *given), synced=False) as state:
        await until(lambda: "403" in state.why_not_synced())
        why = (
            "nodepools.compute.coreweave.com can't be read: 403 Forbidden: nodepools.compute.coreweave.com is "
            f'forbidden: User "system:serviceaccount:spotgate-system:{name}" cannot {lacking} resource "nodepools" in '
            'API group "compute.coreweave.com" at the cluster scope'
        )
        assert state.why_not_synced() == why
        view = state.view()
        assert (view.pools, view.why_unknown) == (None, f"{why}.")
        assert view.remedy == "permit spotgate's ServiceAccount to list and watch nodepools.compute.coreweave.com"
        assert ((await state.fresh()).pools is None) == (lacking == "list")
        grant(bare_cluster, name, "list", "watch")
        async with asyncio.timeout(PATIENCE):
            await state.synced()
        assert "h100" in names(state.view())


@pytest.mark.usefixtures("bare_pools")
async def test_a_revoked_permission_makes_fresh_pools_unknown(bare_cluster: Cluster) -> None:
    async with following(account(bare_cluster, "demoted", "list", "watch")) as state:
        grant(bare_cluster, "demoted", "get")
        who = "--as=system:serviceaccount:spotgate-system:demoted"
        await until(
            lambda: bare_cluster.kubectl.run("auth", "can-i", "list", "nodepools.compute.coreweave.com", who).returncode
        )
        view = await state.fresh()
        assert view.pools is None
        assert "cannot list resource" in view.why_unknown
        assert "spotgate-system" in view.namespaces


async def test_resources_that_the_cluster_lacks_need_no_permission(bare_cluster: Cluster) -> None:
    providers = elsewhere(group="compute.coreweave.com", resource="otherpools")
    async with following(account(bare_cluster, "frugal"), providers) as state:
        assert names(state.view()) == names(await state.fresh()) == []


@pytest.mark.usefixtures("bare_pools")
async def test_the_shipped_cluster_role_is_sufficient(bare_cluster: Cluster) -> None:
    bare_cluster.kubectl("apply", f"--filename={RBAC}", "--namespace=spotgate-system")
    user = bare_cluster.as_service_account("spotgate-system", "spotgate")
    async with following(user.kubeconfig, load_bundle().providers) as state:
        assert "h100" in names(state.view())
        assert names(await state.fresh()) == names(state.view())
        assert "default" in state.view().namespaces
        assert state.view().api_server is not None


def test_the_shipped_cluster_role_names_every_node_pool_that_the_shipped_policies_read() -> None:
    role = next(document for document in yaml.safe_load_all(RBAC.read_text()) if document["kind"] == "ClusterRole")
    may = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    read = {(reader.group, reader.resource) for reader in load_bundle().readers if reader.served}
    assert {(*resource, verb) for resource in read for verb in ("list", "watch")} <= may


@pytest.mark.usefixtures("bare_pools")
async def test_known_state_survives_a_starting_api_server_that_forbids_everything(
    bare_cluster: Cluster,
) -> None:
    async with following(account(bare_cluster, "restarted", "list", "watch")) as state:
        before = names(state.view())
        mirrors = state._needed
        seen: set[int] = set()

        async def watch() -> None:
            while True:
                assert names(state.view()) == before
                seen.update(mirror.problem.status for mirror in mirrors if mirror.problem is not None)
                await asyncio.sleep(0.005)

        watching = asyncio.create_task(watch())
        for _ in range(10):  # the moment is short, and not every attempt hits it
            bare_cluster.processes["kube-apiserver"].kill()
            bare_cluster.processes["kube-apiserver"].start()
            await until(lambda: any(mirror.problem is not None for mirror in mirrors))
            await until(lambda: all(mirror.problem is None for mirror in mirrors))
            if http.client.FORBIDDEN in seen:
                break
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):  # not AssertionError
            await watching
        assert http.client.FORBIDDEN in seen, "the API server never forbade what it permits"


# Credentials


@pytest.mark.usefixtures("bare_pools")
async def test_replaced_credentials_are_used(bare_cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    bare_cluster.credentials.write_kubeconfig(kubeconfig, {"token": "expired"})
    async with following(kubeconfig, synced=False) as state:
        assert state.view().why_unknown == "nodepools.compute.coreweave.com are not known yet."
        await until(lambda: "401 Unauthorized" in state.why_not_synced())
        assert state.view().remedy == "give spotgate credentials that the API server accepts"
        bare_cluster.credentials.write_kubeconfig(kubeconfig, {"token": bare_cluster.credentials.tokens["admin"]})
        async with asyncio.timeout(PATIENCE):
            await state.synced()
        assert "h100" in names(await state.fresh())


@pytest.mark.usefixtures("bare_pools")
async def test_in_a_cluster_the_pods_service_account_is_used(
    bare_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", bare_cluster.credentials.url.rpartition(":")[2])
    (tmp_path / "token").write_text(bare_cluster.credentials.tokens["admin"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(bare_cluster.credentials.authority))
    async with following(None) as state:
        assert "h100" in names(state.view())


async def test_outside_of_a_cluster_no_service_account_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UnusableCredentialsError, match=r"^the Pod's ServiceAccount: can't be used .* not set"):
        await Api.connect(None)


# Outages of the API server


def etcd(bare_cluster: Cluster, call: str, **body: object) -> Any:
    """Change etcd directly, behind the API server's back."""
    url = next(flag for flag in bare_cluster.processes["etcd"].command if flag.startswith("--listen-client-urls="))
    connection = http.client.HTTPConnection(url.partition("://")[2], timeout=10)
    connection.request("POST", f"/v3/kv/{call}", json.dumps(body))
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


@pytest.mark.usefixtures("bare_pools")
async def test_an_outage_keeps_the_last_copy_and_missed_changes_appear_afterwards(
    bare_cluster: Cluster,
) -> None:
    async with following(admin(bare_cluster)) as state:
        bare_cluster.processes["kube-apiserver"].kill()
        async with following(admin(bare_cluster), synced=False) as newcomer:
            await until(lambda: "Cannot connect" in newcomer.why_not_synced())
            fresh = await state.fresh()
            assert fresh.pools is None
            assert "Cannot connect to host" in fresh.why_unknown
            assert "default" in fresh.namespaces
            assert newcomer.view().pools is None
            assert "h100" in names(state.view())

            # Delete a pool and compact etcd: no watch can resume from its last revision.
            key = base64.b64encode(b"/registry/compute.coreweave.com/nodepools/h100").decode()
            gone = etcd(bare_cluster, "deleterange", key=key)
            assert gone["deleted"] == "1"
            etcd(bare_cluster, "compaction", revision=gone["header"]["revision"], physical=True)
            bare_cluster.restart("kube-apiserver")

            async with asyncio.timeout(PATIENCE):
                await newcomer.synced()
            await until(lambda: "h100" not in names(state.view()))
            assert names(state.view()) == names(newcomer.view()) == names(await state.fresh())


@pytest.mark.usefixtures("bare_pools")
async def test_a_watch_that_cannot_resume_starts_again_with_a_list(bare_cluster: Cluster) -> None:
    api = await Api.connect(admin(bare_cluster))
    (mirror,) = LiveState(api, PROVIDERS, HASTE)._pools
    # The API server's history of NodePools begins with their CRD, long after the first revision.
    mirror._version, mirror._resource_version = "v1alpha1", "1"
    with pytest.raises(ApiError, match=r"^410 Gone: .*too old") as caught:
        await mirror._follow()
    assert caught.value.status == http.HTTPStatus.GONE
    run = asyncio.create_task(mirror.run())
    await until(lambda: ("", "h100") in mirror.items)
    assert mirror.problem is None
    await stop(api, run)
