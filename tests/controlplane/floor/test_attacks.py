"""Nothing that one namespace does changes the floor of another one, and a leader that can't see doesn't lead."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.floor.harness import Checker, Controllers, floored, gates
from tests.controlplane.harness.api import JSON_PATCH, Api, pods_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.relay import Relay
    from tests.controlplane.harness.webhook import Webhook

FLOOR = "/metadata/annotations/spotgate.dev~1on-demand-floor"


@contextlib.contextmanager
def patching(cluster: Cluster, pods: list[str], path: str) -> Iterator[None]:
    """Change an annotation of these Pods as often as possible, each on its own connection."""
    ends = threading.Event()

    def patch(pod: str) -> None:
        credentials = cluster.credentials
        tls = ssl.create_default_context(cafile=str(credentials.authority))
        address = credentials.url.removeprefix("https://")
        headers = {"Authorization": f"Bearer {credentials.tokens['admin']}", "Content-Type": JSON_PATCH}
        with contextlib.closing(http.client.HTTPSConnection(address, timeout=30, context=tls)) as connection:
            number = 0
            while not ends.is_set():
                number = number % 1000 + 1
                change = {"op": "add", "path": path, "value": str(number)}
                connection.request("PATCH", pod, json.dumps([change]), headers)
                connection.getresponse().read()

    threads = [threading.Thread(target=patch, args=(pod,)) for pod in pods]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("path", ["/metadata/annotations/number", FLOOR], ids=["its Pods", "the floor of its Pods"])
def test_a_tenant_who_always_changes_gated_pods_stops_nobody(
    webhook: Webhook, team: Kubectl, running: Controllers, path: str
) -> None:
    api = Api(webhook.cluster)
    running.kill()
    with api.namespace("hostile") as hostile:
        deployments = f"/apis/apps/v1/namespaces/{hostile}/deployments"
        api.create(deployments, floored("hostile", 3, "1"))
        api.wait(lambda: len(api.get(pods_in(hostile))["items"]) == 3, "the hostile Pods exist")
        pods = [f"{pods_in(hostile)}/{pod['metadata']['name']}" for pod in api.get(pods_in(hostile))["items"]]
        assert all("schedulingGates" in api.get(pod)["spec"] for pod in pods)
        with patching(webhook.cluster, pods, path):
            running.start()
            running.wait_for_leader()
            webhook.wait(lambda: gates(webhook, floored("web", 1, "1")), "the webhook gates Pods")
            team.apply(floored("web", 3, "1"))
            team("rollout", "status", "deployment/web", "--timeout=60s")
            for _ in range(15):
                assert gates(webhook, floored("web", 1, "1"))
                time.sleep(1)
            api.wait(lambda: not any("schedulingGates" in api.get(pod)["spec"] for pod in pods), "no Pod waits")
        api.delete(f"{deployments}/hostile?propagationPolicy=Foreground")


def test_a_leader_whose_connections_hang_without_a_reset_sees_again_within_seconds(
    webhook: Webhook, team: Kubectl, running: Controllers, relay: Relay
) -> None:
    running.wait_for_leader()
    webhook.wait(lambda: gates(webhook, floored("web", 1, "1")), "the webhook gates Pods")
    with Checker(webhook.cluster) as checker:
        relay.freeze()
        team.apply(floored("web", 3, "1"))
        team("rollout", "status", "deployment/web", "--timeout=30s")
        assert checker.assigned == 3  # none of them was created without the gate
