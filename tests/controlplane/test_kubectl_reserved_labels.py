"""Reserved labels in Pods that are too large to judge, and in workloads that are older than the webhook."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.kubectl import as_list
from tests.objects import deployment, pod, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.cluster import Cluster
    from tests.controlplane.kubectl import Kubectl
    from tests.controlplane.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

RESERVED = {"foo.coreweave.cloud/bar": "x"}
MISSPELT = {"qos.coreweave.cloud/interruptible": "true"}


def test_a_reserved_label_is_denied_in_a_pod_that_is_too_large_to_be_judged(team: Kubectl) -> None:
    selector = {f"key-{number}": "" for number in range(115_000)}  # 1.7 MiB of JSON, and less than etcd takes
    large = saying(pod("large", nodeSelector=selector), RESERVED)
    result = team.run("create", "--filename=-", documents=as_list(large))
    assert result.returncode == 1
    assert (
        "label foo.coreweave.cloud/bar is in the reserved domain coreweave.cloud (at metadata.labels" in result.stderr
    )
    assert "of memory, more than the 16 that are judged" in result.stderr
    assert team("get", "pods", "--output=name") == ""


@pytest.fixture(scope="module")
def running(alice: Kubectl, webhook: Webhook) -> Iterator[Kubectl]:
    """Yield a namespace with things that have had reserved labels since before the webhook was there."""
    name = f"older-{uuid.uuid4().hex[:8]}"
    alice("create", "namespace", name)
    kubectl = replace(alice, namespace=name)
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    webhook.stop()
    kubectl.apply(saying(deployment("old", 2), MISSPELT), saying(pod("old"), RESERVED))
    kubectl("rollout", "status", "deployment/old", "--timeout=60s")
    webhook.start()
    yield kubectl
    alice("delete", "namespace", name, "--wait=false")


def test_a_workload_older_than_the_webhook_still_replaces_its_pods(cluster: Cluster, running: Kubectl) -> None:
    before = {each["metadata"]["name"] for each in running.get("pods", "--selector=app=old")["items"]}
    running("rollout", "restart", "deployment/old")
    running("rollout", "status", "deployment/old", "--timeout=60s")
    running("delete", "pods", "--selector=app=old")
    running("rollout", "status", "deployment/old", "--timeout=60s")
    after = running.get("pods", "--selector=app=old", "--field-selector=status.phase=Running")["items"]
    assert after
    assert not before & {each["metadata"]["name"] for each in after}
    assert all(MISSPELT.items() <= each["metadata"]["labels"].items() for each in after)
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    created = [
        event["annotations"]
        for event in cluster.audit_events()
        if event["user"]["username"] == controller
        and event["objectRef"] | {"namespace": running.namespace, "resource": "pods"} == event["objectRef"]
        and event["verb"] == "create"
    ]
    assert created[-1]["workloads.spotgate.dev/controller-created"] == controller
    assert created[-1]["workloads.spotgate.dev/reserved-labels"] == (
        "warn reserved-labels/reserved: label qos.coreweave.cloud/interruptible is in the reserved domain coreweave.cloud"
    )
