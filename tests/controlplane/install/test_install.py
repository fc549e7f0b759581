"""The installed objects: they survive repeated applies, and have only the permissions they need."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import labeled, pod
from tests.controlplane.harness.kubectl import as_list
from tests.controlplane.harness.webhook import (
    CONFIGURATIONS,
    NAMESPACE,
    OF_CA,
    OF_RULES,
    apply_configurations,
    render_configurations,
)

if TYPE_CHECKING:
    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook

KINDS = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
WEBHOOKS = sum(len(config["webhooks"]) for config in yaml.safe_load_all(CONFIGURATIONS.read_text()))
RESERVED = {"foo.coreweave.cloud/bar": "x"}


# Applied again


def of_rules(webhook: Webhook, *flags: str) -> str:
    return render_configurations(webhook.directory / "policies", webhook.port, *flags)


def with_the_ca_apart(webhook: Webhook) -> None:
    webhook.cluster.kubectl("apply", f"--kustomize={webhook.directory / 'overlay'}")
    external = '{"spec": {"type": "ExternalName", "externalName": "localhost"}}'
    webhook.cluster.kubectl("patch", "service", "spotgate", f"--namespace={NAMESPACE}", f"--patch={external}")
    apply_configurations(webhook.cluster, webhook.directory, webhook.port)


def without_server_side(webhook: Webhook) -> None:
    webhook.cluster.kubectl("apply", "--filename=-", documents=of_rules(webhook))


def with_the_ca_among_the_rules(webhook: Webhook) -> None:
    with_ca = of_rules(webhook, f"--ca-file={webhook.directory / 'ca.crt'}")
    webhook.cluster.kubectl("apply", *OF_RULES, "--filename=-", documents=with_ca)
    webhook.cluster.kubectl("apply", *OF_RULES, "--filename=-", documents=of_rules(webhook))


def by_a_gitops_controller(webhook: Webhook) -> None:
    shipped = CONFIGURATIONS.read_text().replace("port: 443", f"port: {webhook.port}")
    flags = ("--server-side", "--force-conflicts", "--field-manager=argocd-controller")
    webhook.cluster.kubectl("apply", *flags, "--filename=-", documents=shipped)


@pytest.mark.parametrize(
    "way", [with_the_ca_apart, without_server_side, with_the_ca_among_the_rules, by_a_gitops_controller]
)
def test_S2_repeated_applies_keep_enforcement(way: Any, webhook: Webhook, team: Kubectl) -> None:
    authority = base64.b64encode((webhook.directory / "ca.crt").read_bytes()).decode()
    for number in range(2):
        way(webhook)
        stored = [hook for configuration in team.get(KINDS)["items"] for hook in configuration["webhooks"]]
        assert [hook["clientConfig"]["caBundle"] for hook in stored] == [authority] * WEBHOOKS
        assert all(hook["rules"] for hook in stored)
        denied = team.run("apply", "--filename=-", documents=as_list(labeled(pod(f"denied-{number}"), RESERVED)))
        assert "[reserved-labels]" in denied.stderr
        placed = webhook.try_out(labeled(pod(f"placed-{number}"), {"spotgate.dev/capacity": "spot"}))
        assert placed["spec"]["nodeSelector"]


def test_configurations_with_only_the_ca_match_no_requests(kubectl: Kubectl, webhook: Webhook) -> None:
    of_ca = of_rules(webhook, f"--ca-file={webhook.directory / 'ca.crt'}", "--ca-only")
    inert = [configuration | {"metadata": {"name": "inert"}} for configuration in yaml.safe_load_all(of_ca)]
    kubectl("apply", *OF_CA, "--filename=-", documents=as_list(*inert))
    try:
        stored = [hook for kind in KINDS.split(",") for hook in kubectl.get(kind, "inert")["webhooks"]]
        assert len(stored) == WEBHOOKS
        assert not [hook for hook in stored if "rules" in hook]
    finally:
        kubectl("delete", KINDS, "inert")


# The installed objects


@pytest.mark.usefixtures("webhook")
def test_its_pods_meet_restricted_pod_security_and_run_on_different_nodes(kubectl: Kubectl) -> None:
    labels = kubectl.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    pods = kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
    assert len(pods) == 3
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {"spotgate"}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3


@pytest.mark.usefixtures("webhook")
def test_a_rollout_needs_only_as_many_nodes_as_replicas(kubectl: Kubectl) -> None:
    for verb in ("restart", "status"):
        timeout = ["--timeout=60s"] if verb == "status" else []
        kubectl("rollout", verb, "deployment/spotgate", f"--namespace={NAMESPACE}", *timeout)


def test_S13_pods_of_a_critical_priority_class_need_the_quota(kubectl: Kubectl, namespace: str) -> None:
    """Check the behavior of GKE, which `ADMISSION` of the control plane configures."""
    critical = pod("critical", priorityClassName="system-cluster-critical")
    done = kubectl.run("create", "--filename=-", f"--namespace={namespace}", documents=as_list(critical))
    assert "insufficient quota to match these scopes" in done.stderr


@pytest.mark.usefixtures("webhook")
def test_its_pods_can_be_drained_one_at_a_time(kubectl: Kubectl) -> None:
    kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    wait = "--for=jsonpath={.status.disruptionsAllowed}=1"
    kubectl("wait", wait, "poddisruptionbudget/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")


@pytest.mark.usefixtures("webhook")
def test_the_api_server_stores_the_shipped_configurations_unchanged(kubectl: Kubectl) -> None:
    for shipped in yaml.safe_load_all(CONFIGURATIONS.read_text()):
        stored = kubectl.get(shipped["kind"], shipped["metadata"]["name"])
        assert [without_address(hook) for hook in stored["webhooks"]] == [
            without_address(defaulted(hook)) for hook in shipped["webhooks"]
        ]


def defaulted(webhook: dict[str, Any]) -> dict[str, Any]:
    """Return the webhook with the API server's defaults."""
    return {"namespaceSelector": {}, "objectSelector": {}} | webhook


def without_address(webhook: dict[str, Any]) -> dict[str, Any]:
    """Return the webhook without the CA and the port of the process outside of the cluster."""
    service = {name: value for name, value in webhook["clientConfig"]["service"].items() if name != "port"}
    return webhook | {"clientConfig": {"service": service}}


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("list namespaces", "yes"),
        ("watch nodes", "yes"),
        ("list nodepools.compute.coreweave.com", "yes"),
        ("watch nodepools.compute.coreweave.com", "yes"),
        ("update nodepools.compute.coreweave.com", "no"),
        ("delete nodes", "no"),
        ("list pods", "no"),
        ("get secrets", "no"),
        (f"get secrets --namespace={NAMESPACE}", "no"),
        ("create pods", "no"),
        ("get mutatingwebhookconfigurations/spotgate", "yes"),
        ("get validatingwebhookconfigurations/spotgate", "yes"),
        ("get validatingwebhookconfigurations/other", "no"),
        ("list validatingwebhookconfigurations", "no"),
        ("update mutatingwebhookconfigurations/spotgate", "no"),
        ("impersonate users", "no"),
    ],
)
def test_its_service_account_may_read_only_what_the_rules_need(command: str, answer: str, cluster: Cluster) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:spotgate"
    said = cluster.kubectl.run("auth", "can-i", *command.split(), f"--as={account}")
    assert said.stdout == f"{answer}\n"
