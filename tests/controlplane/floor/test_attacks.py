"""Nothing that one namespace does changes the floor of another one, and a leader that can't see doesn't lead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.floor.events import patching
from tests.controlplane.floor.harness import Checker, Controllers, floored, gates
from tests.controlplane.harness.api import Api, pods_in

if TYPE_CHECKING:
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.relay import Relay
    from tests.controlplane.harness.webhook import Webhook

FLOOR = "/metadata/annotations/spotgate.dev~1on-demand-floor"


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
