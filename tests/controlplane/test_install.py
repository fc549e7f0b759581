"""What docs/install.md installs, in which order, what survives being applied again, and what it is allowed to do."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bench.chaos_cert_manager import cert_manager
from tests.cli.replay import test_replay as recorded_reviews
from tests.controlplane.cluster import Cluster, start_cluster
from tests.controlplane.kubectl import as_list
from tests.controlplane.populate import populate
from tests.controlplane.tools import find_tools
from tests.controlplane.webhook import (
    BASE,
    CERTIFICATES,
    CONFIGURATIONS,
    NAMESPACE,
    OF_CA,
    OF_RULES,
    apply_configurations,
    render_configurations,
    start_on_free_ports,
)
from tests.objects import pod, saying
from tests.programs import without
from webhook.controlplane.binaries import BinariesError
from webhook.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.kubectl import Kubectl
    from tests.controlplane.webhook import Webhook

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text()
SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
OPERATE = dict(SECTION.findall((ROOT / "docs" / "operate.md").read_text()))
CERTIFICATES_PAGE = dict(SECTION.findall((ROOT / "docs" / "certificates.md").read_text()))
KINDS = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
WEBHOOKS = sum(len(each["webhooks"]) for each in yaml.safe_load_all(CONFIGURATIONS.read_text()))
RESERVED = {"foo.coreweave.cloud/bar": "x"}


# The page


@pytest.fixture(scope="module")
def own(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield a cluster with nothing in it but nodes."""
    with start_cluster(binaries) as running:
        populate(running.kubectl)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkout, and in it the overlay that the page shows. There is no registry: `docker` does nothing."""
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (overlay,) = re.findall(r"`(my-cluster/kustomization.yaml)`:\n\n +```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / overlay[0]).parent.mkdir()
    (tmp_path / overlay[0]).write_text(overlay[1])
    (tmp_path / "recorded").mkdir()
    reviews = [recorded_reviews.labelled(domain="coreweave.cloud"), recorded_reviews.on_spot()]
    (tmp_path / "recorded" / "reviews.jsonl").write_bytes(recorded_reviews.record(tmp_path / "policies", reviews))
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    return tmp_path


def commands(page: str) -> list[str]:
    return re.findall(r"^ *\$ (.*)$", page, re.MULTILINE)


def carry_out(command: str, own: Cluster, folder: Path) -> int:
    """Run a command of a page. Return how many webhooks have rules then; each of them must have a CA."""
    path = f"{folder / 'bin'}:{own.kubectl.program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "KUBECONFIG": str(own.kubectl.kubeconfig), "HOME": str(folder)}
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    found = own.kubectl.get(KINDS)["items"]
    asking = [webhook for each in found for webhook in each["webhooks"] if "rules" in webhook]
    # Whatever is called can be served: it has a CA from its first moment on.
    assert all("caBundle" in webhook["clientConfig"] for webhook in asking), command
    return len(asking)


def test_every_command_of_the_page_does_what_it_says(own: Cluster, folder: Path) -> None:
    *install, stop = commands(PAGE)
    operate = [command for name in ("Upgrade", "Certificate", "Refused bundle") for command in commands(OPERATE[name])]
    wanted = [*install, *operate, stop, *commands(OPERATE["Remove"])]
    configured = [(command, carry_out(command, own, folder)) for command in wanted]
    rollout = next(number for number, (command, _) in enumerate(configured) if "rollout status" in command)
    assert {rules for _, rules in configured[: rollout + 1]} == {0}
    assert {rules for _, rules in configured[rollout:]} == {0, WEBHOOKS}
    assert configured[-1][1] == 0
    assert nothing_is_left(own)


def test_the_gate_of_an_upgrade_stops_policies_that_change_a_verdict(own: Cluster, folder: Path) -> None:
    gate, *_ = commands(OPERATE["Upgrade"])
    (folder / "policies" / "reserved-labels.yaml").unlink()
    with pytest.raises(AssertionError, match=r"denied -> allowed"):
        carry_out(gate, own, folder)


def nothing_is_left(own: Cluster) -> bool:
    """Wait for the namespace to go; return whether no object of any kind has our label or name."""
    own.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=60s")
    kinds = own.kubectl("api-resources", "--verbs=list", "--output=name").split()
    listed = own.kubectl("get", ",".join(kinds), "--all-namespaces", "--ignore-not-found", "--output=name").split()
    assert len(listed) > 50  # of Kubernetes itself
    return not [name for name in listed if "spotgate" in name]


def test_self_managed_certificates_need_no_certificate(own: Cluster, folder: Path) -> None:
    overlay = folder / "my-cluster" / "kustomization.yaml"
    add_component(overlay, "Self-managed")
    apply, rolled_out, *others = commands(CERTIFICATES_PAGE["Self-managed"])
    assert carry_out(apply, own, folder) == carry_out(rolled_out, own, folder) == 0
    # Nothing runs in this cluster: one replica here stands for its Pods.
    flags = (
        f"--tls-secret={NAMESPACE}/{CERTIFICATES}",
        f"--tls-name=spotgate.{NAMESPACE}.svc",
        f"--kubeconfig={own.as_service_account(NAMESPACE, 'spotgate').kubeconfig}",
    )
    replica = Process("spotgate", (), folder / "spotgate.log")
    try:
        start_on_free_ports(replica, [*flags])
        assert [carry_out(command, own, folder) for command in others] == [0, 0, WEBHOOKS, WEBHOOKS]
        assert own.kubectl.get("secret", CERTIFICATES, f"--namespace={NAMESPACE}")
        assert [carry_out(command, own, folder) for command in commands(OPERATE["Remove"])] == [0, 0, 0]
        assert nothing_is_left(own)
    finally:
        replica.kill()


def add_component(overlay: Path, section: str) -> None:
    (component,) = re.findall(r"^components: .*$", CERTIFICATES_PAGE[section], re.MULTILINE)
    overlay.write_text(f"{overlay.read_text()}{component}\n")


def test_cert_manager_issues_the_certificate_and_injects_its_ca(own: Cluster, folder: Path) -> None:
    overlay = folder / "my-cluster" / "kustomization.yaml"
    add_component(overlay, "cert-manager")
    try:
        find_tools(["cert-manager"])
    except BinariesError as error:
        raise without(error) from None
    with cert_manager(own):
        rules = [carry_out(command, own, folder) for command in commands(CERTIFICATES_PAGE["cert-manager"])]
        assert {*rules[:-2]} == {0}
        assert rules[-2:] == [WEBHOOKS, WEBHOOKS]
        assert {carry_out(command, own, folder) for command in commands(OPERATE["Remove"])} == {0}
        assert nothing_is_left(own)


def test_the_base_without_an_image_is_refused_aloud(own: Cluster) -> None:
    done = own.kubectl.run("apply", f"--kustomize={BASE}")
    try:
        assert done.returncode == 1
        assert (
            'The Deployment "spotgate" is invalid: spec.template.spec.containers[0].image: Required value'
            in done.stderr
        )
        assert own.kubectl.get("deployments", f"--namespace={NAMESPACE}")["items"] == []
    finally:
        own.kubectl("delete", "namespace", NAMESPACE)


# Applied again


def of_rules(webhook: Webhook, *flags: str) -> str:
    return render_configurations(webhook.directory / "policies", webhook.port, *flags)


def as_the_page_says(webhook: Webhook) -> None:
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
    "way", [as_the_page_says, without_server_side, with_the_ca_among_the_rules, by_a_gitops_controller]
)
def test_S2_applied_three_times_over_it_still_enforces(way: Any, webhook: Webhook, team: Kubectl) -> None:
    authority = base64.b64encode((webhook.directory / "ca.crt").read_bytes()).decode()
    for number in range(3):
        way(webhook)
        stored = [each for configuration in team.get(KINDS)["items"] for each in configuration["webhooks"]]
        assert [each["clientConfig"]["caBundle"] for each in stored] == [authority] * WEBHOOKS
        assert all(each["rules"] for each in stored)
        denied = team.run("apply", "--filename=-", documents=as_list(saying(pod(f"denied-{number}"), RESERVED)))
        assert "[reserved-labels]" in denied.stderr
        placed = webhook.try_out(saying(pod(f"placed-{number}"), {"spotgate.dev/capacity": "spot"}))
        assert placed["spec"]["nodeSelector"]


def test_a_ca_that_is_applied_alone_asks_about_nothing(kubectl: Kubectl, webhook: Webhook) -> None:
    of_ca = of_rules(webhook, f"--ca-file={webhook.directory / 'ca.crt'}", "--ca-only")
    inert = [each | {"metadata": {"name": "inert"}} for each in yaml.safe_load_all(of_ca)]
    kubectl("apply", *OF_CA, "--filename=-", documents=as_list(*inert))
    try:
        stored = [each for kind in KINDS.split(",") for each in kubectl.get(kind, "inert")["webhooks"]]
        assert len(stored) == WEBHOOKS
        assert not [each for each in stored if "rules" in each]
    finally:
        kubectl("delete", KINDS, "inert")


# What was installed


@pytest.mark.usefixtures("webhook")
def test_its_pods_are_admitted_under_restricted_pod_security_and_each_has_a_node_of_its_own(kubectl: Kubectl) -> None:
    labels = kubectl.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    pods = kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
    assert len(pods) == 3
    assert {each["spec"]["serviceAccountName"] for each in pods} == {"spotgate"}
    assert len({each["spec"]["nodeName"] for each in pods}) == 3


@pytest.mark.usefixtures("webhook")
def test_a_rollout_needs_no_node_more_than_there_are_replicas(kubectl: Kubectl) -> None:
    for verb in ("restart", "status"):
        timeout = ["--timeout=60s"] if verb == "status" else []
        kubectl("rollout", verb, "deployment/spotgate", f"--namespace={NAMESPACE}", *timeout)


def test_S13_pods_of_a_critical_class_need_the_quota(kubectl: Kubectl, namespace: str) -> None:
    """As on GKE; `ADMISSION` of the control plane says so."""
    critical = pod("critical", priorityClassName="system-cluster-critical")
    done = kubectl.run("create", "--filename=-", f"--namespace={namespace}", documents=as_list(critical))
    assert "insufficient quota to match these scopes" in done.stderr


@pytest.mark.usefixtures("webhook")
def test_its_pods_can_be_drained_one_at_a_time(kubectl: Kubectl) -> None:
    kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    wait = "--for=jsonpath={.status.disruptionsAllowed}=1"
    kubectl("wait", wait, "poddisruptionbudget/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")


@pytest.mark.usefixtures("webhook")
def test_the_api_server_has_the_configurations_as_they_are_shipped(kubectl: Kubectl) -> None:
    for shipped in yaml.safe_load_all(CONFIGURATIONS.read_text()):
        stored = kubectl.get(shipped["kind"], shipped["metadata"]["name"])
        assert [without_address(each) for each in stored["webhooks"]] == [
            without_address(defaulted(each)) for each in shipped["webhooks"]
        ]


def defaulted(webhook: dict[str, Any]) -> dict[str, Any]:
    """With what the API server fills in."""
    selectors: dict[str, Any] = {"namespaceSelector": {}, "objectSelector": {}}
    return selectors | webhook | {"rules": [{"scope": "*"} | rule for rule in webhook["rules"]]}


def without_address(webhook: dict[str, Any]) -> dict[str, Any]:
    """Without the CA and the port, which are those of the process outside of the cluster."""
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
def test_its_service_account_may_read_what_rules_must_know_and_nothing_else(
    command: str, answer: str, cluster: Cluster
) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:spotgate"
    said = cluster.kubectl.run("auth", "can-i", *command.split(), f"--as={account}")
    assert said.stdout == f"{answer}\n"
