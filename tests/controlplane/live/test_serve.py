"""`spotgate serve --kubeconfig` with a real API server: ready when it knows the cluster, and always current."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.harness import LOOPBACK, SHORT, Process, eventually, review
from webhook.server.serve import ServeOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster


@pytest.fixture
def spawn(bare_cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Return a function that starts `spotgate serve` on the cluster, with the shipped policies."""
    started: list[Process] = []

    def start_one(*, ready: bool = True, **changes: Any) -> Process:
        options: dict[str, Any] = {
            "kubeconfig": bare_cluster.credentials.kubeconfig("admin"),
            "limits": SHORT,
        } | changes
        serve = ServeOptions(listen=LOOPBACK, ops=LOOPBACK, self_signed=True, **options)
        process = Process(serve, tmp_path / f"{len(started)}.log", ready=ready)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.end()


def answer(serving: Process, pool: dict[str, Any]) -> Any:
    """Return spotgate's answer to the deletion of a node pool."""
    return serving.post(deletion(pool)).json["response"]


def deletion(pool: dict[str, Any]) -> bytes:
    """Return the review of a node pool's deletion."""
    return review(
        operation="DELETE",
        kind={"group": "compute.coreweave.com", "version": "v1alpha1", "kind": "NodePool"},
        resource={"group": "compute.coreweave.com", "version": "v1alpha1", "resource": "nodepools"},
        name=pool["metadata"]["name"],
        namespace=None,
        object=None,
        oldObject=pool,
    )


@pytest.mark.usefixtures("bare_pools")
def test_it_starts_without_an_api_server_and_becomes_ready_with_it(
    bare_cluster: Cluster, spawn: Callable[..., Process]
) -> None:
    fallback = bare_cluster.kubectl.get("nodepools.compute.coreweave.com", "h100")
    bare_cluster.processes["kube-apiserver"].kill()
    serving = spawn(ready=False)
    eventually(lambda: b"Cannot connect to host" in serving.ops("/readyz").body)
    assert serving.ops("/readyz").status == http.HTTPStatus.SERVICE_UNAVAILABLE
    assert serving.ops("/healthz").status == http.HTTPStatus.OK
    refused = answer(serving, fallback)
    assert not refused["allowed"]
    assert "The cluster hasn't been read yet." in refused["status"]["message"]
    bare_cluster.restart("kube-apiserver")
    eventually(lambda: serving.ops("/readyz").status == http.HTTPStatus.OK)

    # It stays ready, because every replica loses the API server at the same time.
    bare_cluster.processes["kube-apiserver"].kill()
    refused = answer(serving, fallback)
    assert not refused["allowed"]
    assert "can't be read: Cannot connect to host" in refused["status"]["message"]
    assert serving.ops("/readyz").status == http.HTTPStatus.OK
    bare_cluster.restart("kube-apiserver")
    eventually(lambda: "h100-spot" in answer(serving, fallback)["status"]["message"])
