"""Nothing that one namespace does changes the floor of another one, and a leader that can't see doesn't lead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.controlplane.floor.events import patching
from tests.controlplane.floor.harness import Checker, Controllers, floored, gates
from tests.controlplane.harness.api import Api, pods_in
from webhook.cluster.floor import FRESH_SECONDS

if TYPE_CHECKING:
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.relay import Relay
    from tests.controlplane.harness.webhook import Webhook

NUMBER = "/metadata/annotations/number"
FLOOR = "/metadata/annotations/spotgate.dev~1on-demand-floor"


def test_a_tenant_who_always_changes_gated_pods_and_their_floors_stops_nobody(
    webhook: Webhook, team: Kubectl, running: Controllers
) -> None:
    api = Api(webhook.cluster)
    running.stop()
    with api.namespace("hostile") as hostile:
        deployments = f"/apis/apps/v1/namespaces/{hostile}/deployments"
        api.create(deployments, floored("hostile", 2, "1"))
        api.wait(lambda: len(api.get(pods_in(hostile))["items"]) == 2, "the hostile Pods exist")
        pods = [f"{pods_in(hostile)}/{pod['metadata']['name']}" for pod in api.get(pods_in(hostile))["items"]]
        assert all("schedulingGates" in api.get(pod)["spec"] for pod in pods)
        with patching(webhook.cluster, pods[:1], NUMBER), patching(webhook.cluster, pods[1:], FLOOR):
            running.start()
            running.wait_for_leader()
            webhook.wait(lambda: gates(webhook, floored("web", 1, "1")), "the webhook gates Pods")
            team.apply(floored("web", 3, "1"))
            team("rollout", "status", "deployment/web", "--timeout=60s")
            for _ in range(int(FRESH_SECONDS) + 2):  # longer than the webhook gates without a renewal
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
        webhook.wait(lambda: checker.assigned == 3, "the watch has seen three assignments: each Pod had the gate")
