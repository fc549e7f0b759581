"""What `kubectl apply -k manifests/base` installs, and what it is allowed to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.controlplane.webhook import MANIFESTS, NAMESPACE

if TYPE_CHECKING:
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("webhook")


def test_its_pods_are_admitted_under_restricted_pod_security_and_come_up(kubectl: Kubectl) -> None:
    labels = kubectl.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    pods = kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
    assert len(pods) == 3
    assert {each["spec"]["serviceAccountName"] for each in pods} == {"spotgate"}


def test_its_pods_can_be_drained_one_at_a_time(kubectl: Kubectl) -> None:
    kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    wait = "--for=jsonpath={.status.disruptionsAllowed}=1"
    kubectl("wait", wait, "poddisruptionbudget/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")


def test_the_api_server_has_the_configurations_as_they_are_shipped(kubectl: Kubectl) -> None:
    for shipped in yaml.safe_load_all((MANIFESTS / "webhooks.yaml").read_text()):
        stored = kubectl.get(shipped["kind"], shipped["metadata"]["name"])
        assert [without_address(each) for each in stored["webhooks"]] == [
            without_address(defaulted(each)) for each in shipped["webhooks"]
        ]


def defaulted(webhook: dict[str, Any]) -> dict[str, Any]:
    """With what the API server fills in."""
    return webhook | {"objectSelector": {}, "rules": [{"scope": "*"} | rule for rule in webhook["rules"]]}


def without_address(webhook: dict[str, Any]) -> dict[str, Any]:
    """Without the CA and the port, which are those of the process outside of the cluster."""
    service = {name: value for name, value in webhook["clientConfig"]["service"].items() if name != "port"}
    return webhook | {"clientConfig": {"service": service}}


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
        ("update mutatingwebhookconfigurations", "no"),
        ("impersonate users", "no"),
    ],
)
def test_its_service_account_may_read_what_rules_must_know_and_nothing_else(
    command: str, answer: str, cluster: Cluster
) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:spotgate"
    said = cluster.kubectl.run("auth", "can-i", *command.split(), f"--as={account}")
    assert said.stdout == f"{answer}\n"
