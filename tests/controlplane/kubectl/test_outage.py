"""An outage of the webhook: the requests that still work, and the errors of the others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import deployment, labeled, node_pool, pod
from tests.controlplane.harness.kubectl import as_list
from webhook.registration.cel import KEY_LENGTH_AT_MOST
from webhook.registration.pool_conditions import ANNOTATIONS_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook

KIND = "nodepools.compute.coreweave.com"
POOL = node_pool("outage")
SPOT = {"spotgate.dev/capacity": "spot"}
RESERVED = {"foo.coreweave.cloud/bar": "x"}
MISSPELT = {"qos.coreweave.cloud/interruptible": "true"}
KARPENTERS = "nodepools.karpenter.sh"
MACHINE_POOLS = "machinepools.cluster.x-k8s.io"
HELD = "held-by-a-pool"
OLDER = "older-than-the-webhook"
INFRASTRUCTURE = {
    "AWSManagedMachinePool": "v1beta2",
    "AzureManagedMachinePool": "v1beta1",
    "AzureASOManagedMachinePool": "v1beta1",
    "GCPManagedMachinePool": "v1beta1",
}
MACHINES = {
    "scaling": {"maxSize": 3},
    "sku": "Standard_D4s_v5",
    "resources": [{"kind": "ManagedClustersAgentPool", "spec": {"vmSize": "Standard_D4s_v5"}}],
}
"""The spec of every infrastructure machine pool; each kind reads its own fields."""
GROUP = "infrastructure.cluster.x-k8s.io"
PROVIDER_IDS = '{"spec":{"providerIDList":["aws:///eu-west-1a/i-1"]}}'
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
THERE: tuple[dict[str, Any], ...] = (
    node_pool("growing", instanceType="turin-gp"),
    {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "growing"},
        "spec": {"template": {"spec": {"nodeClassRef": NODE_CLASS, "requirements": [ON_DEMAND]}}},
    },
    {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachinePool",
        "metadata": {"name": "held", "namespace": HELD},
        "spec": {"replicas": 3},
    },
    *(
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": kind,
            "metadata": {"name": "held", "namespace": HELD},
            "spec": MACHINES,
        }
        for kind, version in INFRASTRUCTURE.items()
    ),
)
LONG_PREFIX = ".".join(["x"] * (KEY_LENGTH_AT_MOST // 4))
"""With the rest of the key, the length is `KEY_LENGTH_AT_MOST`: 63, a slash, and 63."""
ANNOTATED = node_pool("annotated", instanceType="turin-gp")
ANNOTATED["metadata"]["annotations"] = {f"{LONG_PREFIX}/{number:063}": "" for number in range(ANNOTATIONS_AT_MOST)}
FAILED = re.compile(
    r"Error from server \(InternalError\): (error when creating \"STDIN\": )?Internal error occurred: failed calling webhook "
    r'"node-pools\.spotgate\.dev": failed to call webhook: Post "https://spotgate\.spotgate-system\.svc:\d+/validate\?timeout=3s": '
    r"dial tcp \S+: connect: connection refused\n"
)


@pytest.fixture(scope="module")
def outage(webhook: Webhook) -> Iterator[None]:
    """Create pools of several kinds, and stop the webhook until the last tests of this file."""
    kubectl = webhook.cluster.kubectl
    kubectl("create", "namespace", HELD)
    kubectl.apply(*THERE)
    kubectl("create", "--filename=-", documents=as_list(ANNOTATED))
    kubectl("create", "namespace", OLDER)
    webhook.stop()
    replace(kubectl, namespace=OLDER).apply(labeled(deployment("old", 2), MISSPELT))
    yield
    if webhook.process.exit_code is not None:
        webhook.start()
    webhook.wait_until_called()
    for thing in THERE[:2]:
        kubectl("delete", thing["kind"].lower() + "s." + thing["apiVersion"].partition("/")[0], "growing")
    kubectl("delete", KIND, "annotated")
    kubectl("delete", "namespace", OLDER, "--wait=false")


@pytest.mark.usefixtures("outage")
def test_pods_start_unchanged_and_without_warnings(team: Kubectl) -> None:
    pods = (labeled(pod("labelled"), SPOT | RESERVED), deployment("web", 2), labeled(deployment("worker", 0), RESERVED))
    result = team.run("apply", "--filename=-", documents=as_list(*pods))
    assert (result.returncode, result.stderr) == (0, "")
    team("wait", "--for=condition=Ready", "pod/labelled", "--timeout=60s")
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert "nodeSelector" not in team.get("pod", "labelled")["spec"]
    for command in ("scale deployment/web --replicas=3", "delete pod/labelled", "delete deployment/web"):
        result = team.run(*command.split())
        assert (result.returncode, result.stderr) == (0, ""), command


@pytest.mark.usefixtures("outage")
def test_node_pools_cannot_be_changed_and_the_error_names_the_webhook(alice: Kubectl) -> None:
    before = alice.get(KIND)["items"]
    for result in (
        alice.run("apply", "--filename=-", documents=as_list(POOL)),
        alice.run("apply", "--server-side", "--filename=-", documents=as_list(POOL)),
        alice.run("label", KIND, "h100", "team=blue"),
        alice.run("scale", f"{KIND}/h100", "--replicas=0"),
        alice.run("delete", KIND, "h100-spot"),
    ):
        assert (result.returncode, result.stdout) == (1, "")
        assert FAILED.fullmatch(result.stderr), result.stderr
    assert alice.get(KIND)["items"] == before


@pytest.mark.usefixtures("outage")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ("patch", f"{KIND}/growing", '{"metadata":{"finalizers":["example.com/hold"]}}'), id="a finalizer"
        ),
        pytest.param(("patch", f"{KIND}/growing", '{"metadata":{"finalizers":null}}'), id="no finalizer"),
        pytest.param(
            ("patch", f"{KIND}/annotated", '{"spec":{"targetNodes":3}}'),
            id="autoscaler's targetNodes, many annotations",
        ),
        pytest.param(("patch", f"{KIND}/growing", '{"spec":{"targetNodes":3}}'), id="autoscaler's targetNodes"),
        pytest.param(("scale", f"{KIND}/growing", "--replicas=4"), id="scale up"),
        pytest.param(("annotate", KARPENTERS, "growing", "karpenter.sh/nodepool-hash=2"), id="Karpenter's hash"),
        pytest.param(("scale", f"{MACHINE_POOLS}/held", "--replicas=5", f"--namespace={HELD}"), id="MachinePool"),
        pytest.param(
            ("patch", f"{MACHINE_POOLS}/held", '{"spec":{"replicas":6}}', f"--namespace={HELD}"),
            id="MachinePool's spec",
        ),
        pytest.param(
            (
                "patch",
                f"{MACHINE_POOLS}/held",
                '{"spec":{"replicas":7,"providerIDList":["aws:///eu-west-1a/i-1"]}}',
                f"--namespace={HELD}",
            ),
            id="MachinePool's replicas and providerIDList",
        ),
        *(
            pytest.param(
                ("patch", f"{kind.lower()}s.{GROUP}/held", patch, f"--namespace={HELD}"), id=f"{kind}'s {what}"
            )
            for kind in INFRASTRUCTURE
            for what, patch in (
                ("providerIDList", PROVIDER_IDS),
                ("providerIDList gone", '{"spec":{"providerIDList":null}}'),
            )
        ),
        pytest.param(("delete", "namespace", HELD, "--timeout=90s"), id="namespace with a pool"),
    ],
)
def test_changes_that_remove_no_fallback_work_during_the_outage(command: tuple[str, ...], alice: Kubectl) -> None:
    if command[0] == "patch":
        verb, thing, patch, *flags = command
        command = (verb, thing, "--type=merge", f"--patch={patch}", *flags)
    done = alice.run(*command)
    assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.usefixtures("outage")
def test_a_node_pool_cannot_shrink_during_the_outage(alice: Kubectl) -> None:
    for command in (
        ("scale", f"{KIND}/growing", "--replicas=1"),
        ("patch", f"{KIND}/growing", "--type=merge", '--patch={"spec":{"computeClass":"spot"}}'),
        ("annotate", KIND, "growing", "spotgate.dev/break-glass=drill"),
        ("delete", KIND, "growing"),
    ):
        done = alice.run(*command)
        assert (done.returncode, done.stdout) == (1, ""), command
        assert FAILED.fullmatch(done.stderr), done.stderr


@pytest.fixture(scope="module")
def back(outage: None, webhook: Webhook) -> None:
    """End the outage."""
    del outage
    webhook.cluster.kubectl("rollout", "status", "deployment/old", f"--namespace={OLDER}", "--timeout=60s")
    webhook.start()


@pytest.mark.usefixtures("back")
def test_everything_works_again_after_the_outage(alice: Kubectl, team: Kubectl) -> None:
    team.apply(labeled(pod("after"), SPOT))
    assert "nodeSelector" in team.get("pod", "after")["spec"]
    denied = team.run("apply", "--filename=-", documents=as_list(labeled(pod("denied"), RESERVED)))
    assert "[reserved-labels]" in denied.stderr
    assert alice.apply(POOL) == "nodepool.compute.coreweave.com/outage created\n"
    assert alice("delete", KIND, "outage") == 'nodepool.compute.coreweave.com "outage" deleted\n'


@pytest.mark.usefixtures("back")
def test_a_workload_older_than_the_webhook_still_replaces_its_pods(cluster: Cluster, alice: Kubectl) -> None:
    running = replace(alice, namespace=OLDER)
    before = {pod["metadata"]["name"] for pod in running.get("pods", "--selector=app=old")["items"]}
    running("rollout", "restart", "deployment/old")
    running("rollout", "status", "deployment/old", "--timeout=60s")
    running("delete", "pods", "--selector=app=old")
    running("rollout", "status", "deployment/old", "--timeout=60s")
    after = running.get("pods", "--selector=app=old", "--field-selector=status.phase=Running")["items"]
    assert after
    assert not before & {pod["metadata"]["name"] for pod in after}
    assert all(MISSPELT.items() <= pod["metadata"]["labels"].items() for pod in after)
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    created = [
        event["annotations"]
        for event in cluster.audit_events()
        if event["user"]["username"] == controller
        and event["objectRef"] | {"namespace": running.namespace, "resource": "pods"} == event["objectRef"]
        and event["verb"] == "create"
    ]
    assert created[-1]["mutate.spotgate.dev/controller-created"] == controller
    assert created[-1]["mutate.spotgate.dev/reserved-labels"] == (
        "warn reserved-labels/reserved: label qos.coreweave.cloud/interruptible is in the reserved domain coreweave.cloud"
    )
