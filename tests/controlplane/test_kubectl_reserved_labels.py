"""Reserved labels, as somebody with kubectl meets them."""

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


def denial(key: str, field: str, fix: str) -> str:
    domain = key.partition("/")[0].partition(".")[2]
    return (
        f'admission webhook "workloads.spotgate.dev" denied the request: [reserved-labels] label {key} is in the reserved '
        f'domain {domain} (at {field}["{key}"]) [reserved-labels/reserved]\n'
        f"  The platform reserves labels in {domain} and its subdomains, and rejects those that users set.\n"
        f"  Fix: {fix}\n"
    )


ON_A_POD = denial(
    "foo.coreweave.cloud/bar", "metadata.labels", "remove it, or use a domain of your own, e.g. example.com/bar"
)
IN_A_TEMPLATE = denial(
    "qos.coreweave.cloud/interruptible",
    "spec.template.metadata.labels",
    "did you mean qos.coreweave.cloud/interruptable? Otherwise remove it, or use a domain of your own, e.g. "
    "example.com/interruptible",
)

# Creating


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("create", 'error when creating "STDIN": '),
        ("apply", 'error when creating "STDIN": '),
        ("apply --dry-run=server", 'error when creating "STDIN": '),
        ("apply --server-side", ""),
    ],
)
def test_what_has_a_reserved_label_is_denied_however_it_is_created(command: str, prefix: str, alice: Kubectl) -> None:
    for thing, text in (
        (saying(pod("batch"), RESERVED), ON_A_POD),
        (saying(deployment("batch", 1), MISSPELT), IN_A_TEMPLATE),
    ):
        result = alice.run(*command.split(), "--filename=-", documents=as_list(thing))
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == f"Error from server (Forbidden): {prefix}{text}"


def test_a_reserved_label_is_denied_in_a_pod_that_is_too_large_to_be_judged(team: Kubectl) -> None:
    selector = {f"key-{number}": "" for number in range(115_000)}  # 1.7 MiB of JSON, and less than etcd takes
    large = saying(pod("large", nodeSelector=selector), RESERVED)
    result = team.run("create", "--filename=-", documents=as_list(large))
    assert result.returncode == 1
    assert ON_A_POD.partition("\n")[0] in result.stderr
    assert "of memory, more than the 16 that are judged" in result.stderr
    assert team("get", "pods", "--output=name") == ""


def test_what_is_denied_is_not_stored_and_what_comes_with_it_is(team: Kubectl) -> None:
    mixed = (saying(pod("bad"), RESERVED), pod("good"), saying(deployment("worse", 1), MISSPELT))
    result = team.run("apply", "--filename=-", documents=as_list(*mixed))
    assert (result.returncode, result.stdout) == (1, "pod/good created\n")
    assert team("get", "pods,deployments", "--output=name") == "pod/good\n"


# Changing


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


@pytest.mark.parametrize(
    "command",
    [
        "label pod/old team=blue",
        "annotate deployment/old team=blue",
        "scale deployment/old --replicas=3",
        "set image deployment/old main=registry.example.com/app:2",
    ],
)
def test_what_had_the_label_before_can_still_be_changed(command: str, running: Kubectl) -> None:
    result = running.run(*command.split())
    assert (result.returncode, result.stderr) == (0, "")


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


def test_removing_a_reserved_label_and_deleting_what_has_one_is_allowed(running: Kubectl) -> None:
    for command in ("label pod/old foo.coreweave.cloud/bar-", "delete pod/old", "delete deployment/old"):
        result = running.run(*command.split())
        assert (result.returncode, result.stderr) == (0, ""), command
