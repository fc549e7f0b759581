"""The control plane that the other tests stand on is a real one, and Pods run on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.controlplane.binaries import KUBERNETES
from tests.controlplane.kubectl import Kubectl, KubectlError
from tests.controlplane.objects import SPOT, deployment, job, pod
from tests.controlplane.populate import CRDS, nodes_of

if TYPE_CHECKING:
    from tests.controlplane.cluster import Cluster

KINDS = [crd for file in sorted(CRDS.glob("*.yaml")) for crd in yaml.safe_load_all(file.read_text())]

# The servers


def test_the_api_server_is_ready_and_of_the_version_that_was_built(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw=/readyz") == "ok"
    versions = yaml.safe_load(kubectl("version", "--output=yaml"))
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"] == KUBERNETES.version


def test_kubectl_that_fails_says_what_was_run_and_why(kubectl: Kubectl) -> None:
    assert kubectl.run("get", "pod", "nowhere").returncode == 1
    with pytest.raises(KubectlError, match=r'^kubectl get pod nowhere\n.*pods "nowhere" not found$'):
        kubectl("get", "pod", "nowhere")


def test_an_impersonated_user_is_that_user_with_its_groups(cluster: Cluster) -> None:
    alice = cluster.as_user("alice", "team-a")
    assert set(yaml.safe_load(alice("auth", "whoami", "--output=yaml"))["status"]["userInfo"]["groups"]) == {
        "team-a",
        "system:authenticated",
    }
    assert "cannot create resource" in alice.run("create", "namespace", "hers").stderr


def test_a_service_account_has_a_token_of_its_own(cluster: Cluster, namespace: str) -> None:
    user = cluster.as_service_account(namespace, "default")
    who = yaml.safe_load(user("auth", "whoami", "--output=yaml"))["status"]["userInfo"]
    assert who["username"] == f"system:serviceaccount:{namespace}:default"


def test_every_write_is_in_the_audit_log_and_controllers_have_names_of_their_own(
    cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl.apply(deployment("web", 1), arguments=(f"--namespace={namespace}",))
    cluster.kubectl("rollout", "status", "deployment/web", f"--namespace={namespace}", "--timeout=60s")
    users = {
        event["user"]["username"]
        for event in cluster.audit_events()
        if event["verb"] == "create" and event["requestURI"].partition("?")[0] == f"/api/v1/namespaces/{namespace}/pods"
    }
    assert users == {"system:serviceaccount:kube-system:replicaset-controller"}


# Custom resources


@pytest.mark.parametrize("crd", KINDS, ids=lambda crd: crd["metadata"]["name"])
def test_the_custom_resource_can_be_created_with_any_spec(crd: dict[str, Any], kubectl: Kubectl) -> None:
    spec = crd["spec"]
    thing = {
        "apiVersion": f"{spec['group']}/{spec['versions'][0]['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": "probe"},
        "spec": {"anything": {"goes": [1, "two"]}},
    }
    created = kubectl.apply(thing, arguments=("--dry-run=server", "--output=yaml"))
    assert yaml.safe_load(created)["spec"] == thing["spec"]


def test_a_cks_node_pool_is_scaled_by_its_target(kubectl: Kubectl) -> None:
    kubectl("scale", "nodepools.compute.coreweave.com/cpu-spot", "--replicas=5")
    try:
        pool = kubectl.get("nodepools.compute.coreweave.com/cpu-spot")
        assert pool["spec"]["targetNodes"] == 5
        assert pool["spec"]["computeClass"] == "spot"
    finally:
        kubectl("scale", "nodepools.compute.coreweave.com/cpu-spot", "--replicas=2")


# Nodes and what runs on them


def test_every_pool_has_the_nodes_it_targets_and_they_are_ready(kubectl: Kubectl) -> None:
    pools = kubectl.get("nodepools.compute.coreweave.com")["items"]
    nodes = kubectl.get("nodes")["items"]
    assert {node["metadata"]["name"] for node in nodes} == {
        node["metadata"]["name"] for pool in pools for node in nodes_of(pool)
    }
    assert all(
        {"type": "Ready", "status": "True"}.items() <= condition.items()
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    )


def test_a_pod_that_selects_and_tolerates_spot_runs_on_a_spot_node(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(pod("batch", **SPOT), arguments=(f"--namespace={namespace}",))
    kubectl("wait", "--for=condition=Ready", "pod/batch", f"--namespace={namespace}", "--timeout=60s")
    running = kubectl.get("pod", "batch", f"--namespace={namespace}")
    assert running["status"]["phase"] == "Running"
    assert running["spec"]["nodeName"].startswith("cpu-spot-")
    assert any(volume["name"].startswith("kube-api-access-") for volume in running["spec"]["volumes"])


def test_a_pod_that_does_not_tolerate_the_taint_stays_pending(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(pod("batch", nodeSelector=SPOT["nodeSelector"]), arguments=(f"--namespace={namespace}",))
    kubectl("wait", "--for=condition=PodScheduled=False", "pod/batch", f"--namespace={namespace}", "--timeout=60s")
    condition = kubectl.get("pod", "batch", f"--namespace={namespace}")["status"]["conditions"][0]
    assert "untolerated taint(s)" in condition["message"]


def test_a_deployment_of_three_runs_and_keeps_off_spot_nodes(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(deployment("web", 3), arguments=(f"--namespace={namespace}",))
    kubectl("rollout", "status", "deployment/web", f"--namespace={namespace}", "--timeout=60s")
    pods = kubectl.get("pods", f"--namespace={namespace}")["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
    assert {pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods} <= {"cpu-control-plane", "h100"}


def test_a_gpu_job_completes(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(job("train", gpus=8, **SPOT), arguments=(f"--namespace={namespace}",))
    kubectl("wait", "--for=condition=Complete", "job/train", f"--namespace={namespace}", "--timeout=60s")
    (ran,) = kubectl.get("pods", f"--namespace={namespace}")["items"]
    assert ran["spec"]["nodeName"].startswith("h100-spot-")


def test_a_drained_node_loses_its_pods_and_they_run_again_elsewhere(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(deployment("web", 2, **SPOT), arguments=(f"--namespace={namespace}",))
    kubectl("rollout", "status", "deployment/web", f"--namespace={namespace}", "--timeout=60s")
    try:
        kubectl("drain", "cpu-spot-0", "--pod-selector=app=web", "--timeout=60s")
        kubectl("rollout", "status", "deployment/web", f"--namespace={namespace}", "--timeout=60s")
        pods = kubectl.get("pods", f"--namespace={namespace}", "--field-selector=status.phase=Running")["items"]
        assert "cpu-spot-0" not in {pod["spec"]["nodeName"] for pod in pods}
    finally:
        kubectl("uncordon", "cpu-spot-0")
