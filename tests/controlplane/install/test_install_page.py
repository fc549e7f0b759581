"""docs/install.md, certificates.md, and operate.md, command by command: from an empty cluster to a denied `kubectl apply`, and back."""

from __future__ import annotations

import base64
import contextlib
import re
import shutil
import socket
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.builders import labeled, pod
from tests.cli.replay import test_replay as recorded_reviews
from tests.controlplane.harness.checking import check
from tests.controlplane.harness.cluster import UNFAIR, Cluster, start_cluster
from tests.controlplane.harness.kubectl import as_list
from tests.controlplane.harness.live import admin
from tests.controlplane.harness.pages import ROOT, Terminal, commands, sections
from tests.controlplane.harness.populate import CRDS, POOLS, nodes_of, populate, wait_for_crds
from tests.controlplane.harness.tools import find_tools
from tests.controlplane.harness.webhook import (
    CONFIGURATIONS,
    KINDS,
    NAMESPACE,
    Webhook,
    install_webhook,
    render_configurations,
    write_policies,
)
from tests.controlplane.install.certificates import CERTIFICATE_PAGE, MANAGED, from_cert_manager, provided, self_managed
from tests.controlplane.install.installation import APPLY, DOCTOR, PAGE, ROLLED_OUT, Installation
from tests.go_modules import PROMETHEUS_OPERATOR, go_module
from tests.programs import without
from webhook.rehearse.controlplane.binaries import BinariesError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


MONITORING, OPERATE = sections("monitoring.md"), sections("operate.md")
WEBHOOKS: Final = sum(len(config["webhooks"]) for config in yaml.safe_load_all(CONFIGURATIONS.read_text()))
DENIED: Final = "denied the request: [reserved-labels]"
CALLS: Final = {
    "apiserver_admission_webhook_rejection_count": r'(?=.*error_type="calling_webhook_error")',
    "apiserver_admission_webhook_fail_open_count": "",
    "apiserver_admission_webhook_admission_duration_seconds_bucket": r'(?=.*le="1")',
    "apiserver_admission_webhook_admission_duration_seconds_count": "",
}
"""The API server's metrics and labels that the alerts and the dashboard use."""
TEAM: Final = """
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: ours}
spec: {domains: [team.example]}
"""
OLD_LAYOUT: Final = """
- {op: replace, path: /spec/template/spec/containers/0/args/2, value: --policies=/etc/spotgate/policies}
- op: add
  path: /spec/template/spec/containers/0/volumeMounts/-
  value: {name: policies, mountPath: /etc/spotgate/policies, readOnly: true}
- {op: add, path: /spec/template/spec/volumes/-, value: {name: policies, configMap: {name: spotgate-policies}}}
"""


@pytest.fixture(scope="module")
def empty(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield a cluster with node pools but no Nodes."""
    with start_cluster(binaries, UNFAIR) as running:
        running.kubectl("apply", f"--filename={CRDS}")
        wait_for_crds(running.kubectl)
        running.kubectl("apply", f"--filename={POOLS}")
        yield running


@pytest.fixture(scope="module")
def own(empty: Cluster) -> Cluster:
    """Return the same cluster with the Nodes of its pools."""
    populate(empty.kubectl)
    return empty


@pytest.fixture(scope="module")
def operator_crds(own: Cluster) -> None:
    """Install the definitions of the Prometheus operator that the component `monitoring` needs."""
    folder = go_module(*PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    files = [
        f"--filename={folder / f'monitoring.coreos.com_{kind}.yaml'}" for kind in ("podmonitors", "prometheusrules")
    ]
    own.kubectl("apply", "--server-side", *files)
    wait_for_crds(own.kubectl)


@pytest.fixture
def folder(tmp_path: Path, spotgate: Path) -> Path:
    """Return a checkout with a fast `spotgate`, and a `docker` that does nothing, because there is no registry."""
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    docker.with_name("spotgate").symlink_to(spotgate)
    (tmp_path / "recorded").mkdir()
    reviews = [recorded_reviews.labelled(domain="coreweave.cloud"), recorded_reviews.on_spot()]
    (tmp_path / "recorded" / "reviews.jsonl").write_bytes(recorded_reviews.record(tmp_path / "policies", reviews))
    return tmp_path


@pytest.fixture
def installation(own: Cluster, folder: Path) -> Iterator[Installation]:
    with (
        socket.socket() as reserved
    ):  # bound but not listening: this reserves the port, and the server can still bind it
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield Installation(own, folder, reserved.getsockname()[1])


def remove(installation: Installation) -> None:
    kustomize, _ = OPERATE["Remove"].split("With Helm")
    installation.run(*commands(kustomize))
    installation.own.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=60s")


def test_the_emergency_commands_of_the_page_work(empty: Cluster) -> None:
    """Check that spotgate, which needs a Node, doesn't block an autoscaler from adding the first one."""
    kubectl = empty.kubectl
    pools = "nodepools.compute.coreweave.com"
    with install_webhook(empty) as spotgate:
        terminal = Terminal(kubectl, spotgate.directory)
        refused = kubectl.run("delete", pools, "h100", "--dry-run=server")
        assert "[on-demand-fallback]" in refused.stderr
        annotate, delete, cleanup = commands(OPERATE["An emergency change while spotgate runs"])
        terminal.run(annotate, cleanup, annotate, delete)
        spotgate.stop()
        look, grow, rolled_out = commands(OPERATE["Cold start"])
        terminal.run(look)
        waiting = kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
        assert ["nodeName" in pod["spec"] for pod in waiting] == [False] * 3
        terminal.run(grow)
        kubectl.apply(*nodes_of(kubectl.get(pools, "cpu-control-plane")))
        terminal.run(rolled_out)
        refused = kubectl.run("delete", pools, "h100-spot")
        assert "failed calling webhook" in refused.stderr
        kubectl("run", "unjudged", "--image=example.com/image", "--dry-run=server")
        counted = kubectl("get", "--raw", "/metrics")
        for metric, labels in CALLS.items():
            assert re.search(rf'^{metric}{{(?=.*name="[a-z-]+\.spotgate\.dev"){labels}', counted, re.MULTILINE), metric
        rendered = render_configurations(spotgate.directory / "policies", spotgate.port)
        overlay = spotgate.directory / "manifests" / "overlays" / "my-cluster"
        overlay.mkdir(parents=True)
        (overlay / "kustomization.yaml").write_text("resources: [webhooks.yaml]\n")
        (overlay / "webhooks.yaml").write_text(rendered)
        terminal.run(*commands(OPERATE["An emergency change while spotgate is down"]))
    kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=60s")
    kubectl("delete", "nodes", "--all")


@pytest.mark.usefixtures("operator_crds")
def test_gke_install_every_mode_and_remove(installation: Installation) -> None:
    """Install the page's overlay, with self-managed certificates and monitoring."""
    installation.copy("gke")
    installation.call()
    installation.run(APPLY, ROLLED_OUT)
    assert installation.ask().message == ""  # spotgate doesn't answer, and no request is blocked
    with installation.replica(MANAGED) as replica:
        apply, *others = commands(CERTIFICATE_PAGE["Self-managed"])
        installation.run(*others)
        assert_unchanged(installation.run(apply))
        installation.wait_for_audit(replica)
        replica.wait(lambda: "spotgate_webhooks_outdated 0.0" in replica.metrics(), "webhooks are as needed")
        assert installation.failure_policies() == set()
        steps = (("audit-only", "warn-only", "[reserved-labels]"), ("warn-only", "deny", DENIED))
        for before, mode, answer in steps:
            installation.choose(mode, instead_of=before)
            installation.run(APPLY)
            installation.roll_out(replica)
            installation.wait_for(answer, replica)
        assert installation.failure_policies() == {"node-pools"}
        # The probes and the configurations are fine; the Pods of this cluster don't answer.
        checks = [line.split() for line in installation.run(f"{DOCTOR} | cat").splitlines()]
        assert {check[0] for check in checks if check[1] in {"MutatingWebhookConfiguration", "probe"}} == {"ok"}
        component, patches = re.findall(r"```yaml\n(.*?)```", MONITORING["With the Prometheus operator"], re.DOTALL)
        installation.edit(r"^components:\n", component)
        installation.edit(r"\Z", patches)
        # Commands with --secret are for other kinds of certificates.
        installation.run(APPLY, *(command for command in commands(OPERATE["Certificate"]) if "--secret" not in command))
        kinds = "podmonitors,prometheusrules"
        monitored = installation.own.kubectl.get(kinds, f"--namespace={NAMESPACE}", "--selector=release")
        assert {thing["kind"] for thing in monitored["items"]} == {"PodMonitor", "PrometheusRule"}
    remove(installation)
    assert installation.is_removed()


@contextlib.contextmanager
def enforced(
    installation: Installation, certificates: Callable[[Installation], AbstractContextManager[Webhook]], mode: str = ""
) -> Iterator[Webhook]:
    """Apply a kustomization twice, wait until a Pod is denied, and remove it at the end."""
    installation.choose(mode, instead_of="audit-only")
    with certificates(installation) as replica:
        assert_unchanged(installation.run(f"{APPLY} --validate=strict"))
        installation.wait_for(DENIED, replica)
        yield replica
    remove(installation)


def assert_unchanged(applied: str) -> None:
    # kubectl sends the selector of a PodDisruptionBudget each time, even if it is unchanged.
    assert {line for line in applied.splitlines() if not line.endswith(" unchanged")} <= {
        "poddisruptionbudget.policy/spotgate configured"
    }


def test_cks_with_provided_certificates_install_and_remove(installation: Installation) -> None:
    """Install on the on-demand pool that the kustomization names, which has two hosts here."""
    installation.copy("cks")
    installation.edit(r"replace this with your on-demand pool \(docs/install.md\)", "cpu-control-plane")
    (two_hosts,) = re.findall(r"`(replicas: .*)`", PAGE["With kustomize"])
    installation.edit(r"^images:\n", rf"{two_hosts}\n\g<0>")
    with enforced(installation, provided):
        authority = base64.b64encode((installation.folder / "ca.crt").read_bytes()).decode()
        stored = [hook for config in installation.own.kubectl.get(KINDS)["items"] for hook in config["webhooks"]]
        assert [entry["clientConfig"]["caBundle"] for entry in stored] == [authority] * WEBHOOKS
        pods = installation.own.kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
        assert {pod["spec"]["nodeName"] for pod in pods} == {"cpu-control-plane-0", "cpu-control-plane-1"}


def test_aks_with_cert_manager_install_and_remove(installation: Installation) -> None:
    """Install with the annotation that makes AKS' admissions enforcer leave the webhooks alone."""
    try:
        find_tools(["cert-manager"])
    except BinariesError as error:
        raise without(error) from None
    installation.copy("aks")
    with enforced(installation, from_cert_manager):
        annotations = [config["metadata"]["annotations"] for config in installation.own.kubectl.get(KINDS)["items"]]
        assert [metadata["admissions.enforcer/disabled"] for metadata in annotations] == ["true", "true"]


def test_eks_in_strict_mode_install_and_remove(installation: Installation) -> None:
    installation.copy("eks")
    with enforced(installation, self_managed, "strict") as replica:
        assert installation.failure_policies() == {"node-pools", "namespaces", "workloads", "spot-namespaces"}
        replica.stop()
        assert "failed calling webhook" in installation.ask().message
        installation.run(*commands(PAGE["When something is wrong"]))
        assert installation.ask().message == ""


def test_eks_with_an_overlay_cni_install_and_remove(installation: Installation) -> None:
    """Install on the host network, without restricted Pod Security and with one port per host, and with a custom policy."""
    installation.copy("eks-overlay-cni")
    own = {"metadata": {"name": "ours"}, "spec": {"domains": ["example.com"]}}
    policy = {"apiVersion": "spotgate.dev/v1", "kind": "ReservedLabels", **own}
    component, components = re.findall(r"```yaml\n(.*?)```", PAGE["Policies of your own"], re.DOTALL)
    folder = installation.kustomization.with_name("own")
    folder.mkdir()
    (folder / "team.yaml").write_text(yaml.safe_dump(policy))
    (folder / "kustomization.yaml").write_text(component)
    installation.edit(r"^images:\n", components.removeprefix("components:\n  # ...\n") + r"\g<0>")
    installation.edit(r"\.\./\.\./webhooks", "webhooks.yaml")
    installation.run(*commands(PAGE["Policies of your own"]))
    with enforced(installation, self_managed, "deny") as replica:
        replica.wait(lambda: "spotgate_webhooks_outdated 0.0" in replica.metrics(), "webhooks are as needed")
        installation.run(*commands(OPERATE["Upgrade"]), *commands(OPERATE["Refused bundle"]), ROLLED_OUT)
        pods = installation.own.kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
        assert [pod["spec"]["hostNetwork"] for pod in pods] == [True] * 3
        labelled = as_list(labeled(pod("ours"), {"example.com/bar": "x"}))
        assert (
            "denied the request: [ours]" in installation.own.kubectl.run("apply", "-f", "-", documents=labelled).stderr
        )


def test_the_chart_install_every_mode_and_remove(installation: Installation, helm: Path) -> None:
    (installation.folder / "bin" / "helm").symlink_to(helm)
    namespace, install, rolled_out = commands(PAGE["With Helm"])
    installation.run(namespace, install, rolled_out)
    with installation.replica(MANAGED) as replica:
        kubectl = installation.own.kubectl
        external = '{"spec": {"type": "ExternalName", "externalName": "localhost"}}'
        kubectl("patch", "service", "spotgate", f"--namespace={NAMESPACE}", f"--patch={external}")
        rendered = CONFIGURATIONS.read_text().replace("port: 443", f"port: {replica.port}")
        (installation.folder / "webhooks.yaml").write_text(rendered)
        old = ("configmap", "spotgate-policies", f"--namespace={NAMESPACE}")  # as the previous version left it
        kubectl("create", *old, "--from-literal=team.yaml=x")
        kubectl("label", *old, "app.kubernetes.io/managed-by=Helm")
        owner = ("meta.helm.sh/release-name=spotgate", f"meta.helm.sh/release-namespace={NAMESPACE}")
        kubectl("annotate", *old, *owner)
        upgrade = f"helm upgrade spotgate manifests/chart -n {NAMESPACE} --reset-then-reuse-values"
        installation.run(f"{upgrade} --set-file webhooks=webhooks.yaml")
        installation.wait_for_audit(replica)
        for command in commands(PAGE["Audit, warn, deny"]):
            installation.run(command)
            installation.roll_out(replica)
        installation.wait_for(DENIED, replica)
        kept = kubectl.get(*old)
        assert (kept["data"], kept["metadata"]["annotations"]["helm.sh/resource-policy"]) == (
            {"team.yaml": "x"},
            "keep",
        )
        kubectl.get("configmap", "spotgate-own-policies", f"--namespace={NAMESPACE}")  # old replicas still mount it
        kubectl("delete", *old)
        installation.run(upgrade)
        assert kubectl.run("get", *old).returncode == 1
        assert installation.failure_policies() == {"node-pools"}
        # `helm template` prints the same objects.
        image = re.findall(r"image\.repository=\S+", install)[0]
        values = f"--set {image},platform=gke,enforcement=deny --set-file webhooks=webhooks.yaml"
        template = f"helm template spotgate manifests/chart -n {NAMESPACE} {values}"
        changed = installation.run(f"{template} | kubectl diff --server-side --force-conflicts -f - || [ $? = 1 ]")
        assert not re.findall(r"^[+-]  (?!  *generation|.*managedFields).*", changed, re.MULTILINE), changed
    uninstall = commands(OPERATE["Remove"].split("With Helm")[1].split("The namespace contains")[0])
    installation.run(*uninstall)
    assert installation.is_removed()


def test_pods_of_the_previous_version_can_restart_until_an_upgrade_completes(installation: Installation) -> None:
    """Apply the upgrade from a ConfigMap to the image's policies, undo it as if its rollout were stuck, and apply it again."""
    installation.copy("gke")
    installation.choose("", instead_of="audit-only")
    for name in ("old", "new"):
        (write_policies(installation.kustomization.with_name(name)) / "team.yaml").write_text(TEAM)
    files = sorted(file.name for file in installation.kustomization.with_name("old").iterdir())
    generator = {"name": "spotgate-policies", "namespace": NAMESPACE, "files": files}
    patch = {"target": {"kind": "Deployment", "name": "spotgate"}, "patch": OLD_LAYOUT}
    options = {"disableNameSuffixHash": True}
    installation.add("old", {"configMapGenerator": [generator], "generatorOptions": options, "patches": [patch]})
    installation.run(APPLY)
    spec, before = installation.pod(), installation.policies()
    generator = {"name": "spotgate-own-policies", "namespace": NAMESPACE, "behavior": "merge", "files": ["team.yaml"]}
    installation.edit(r"^  - old\n", "  - ../../components/deny\n")
    installation.add("new", {"configMapGenerator": [generator]}, after=r".*/deny\n")
    installation.run(APPLY)
    after = installation.policies()
    assert after != before == installation.policies(spec)
    installation.own.kubectl("rollout", "undo", "deployment/spotgate", f"--namespace={NAMESPACE}")
    assert installation.policies() == before
    installation.run(APPLY)
    assert installation.policies() == after
    labelled = labeled(pod("ours"), {"team.example/a": "x"})
    for flags in (before, after):
        checked = check(admin(installation.own), labelled, flags=tuple(flags))
        assert [result["policy"] for result in checked.report["results"]] == ["ours"]
    remove(installation)


def test_the_upgrade_gate_rejects_policies_that_change_a_verdict(installation: Installation) -> None:
    gate, *_ = commands(OPERATE["Upgrade"])
    warning = {"metadata": {"name": "reserved-labels"}, "spec": {"enforcement": "warn", "domains": ["coreweave.cloud"]}}
    own = installation.kustomization.with_name("own")
    own.mkdir(parents=True)
    team = {"apiVersion": "spotgate.dev/v1", "kind": "ReservedLabels", **warning}
    (own / "team.yaml").write_text(yaml.safe_dump(team))
    with pytest.raises(AssertionError, match=r"denied -> warned"):
        installation.run(gate)


def test_a_missing_image_a_missing_pool_and_two_modes_are_rejected(installation: Installation) -> None:
    kubectl = installation.own.kubectl
    kubectl("create", "namespace", NAMESPACE)
    try:
        unnamed = kubectl.run(
            "apply", "--dry-run=server", f"--kustomize={installation.folder / 'manifests/overlays/cks'}"
        )
        assert "spec.template.spec.containers[0].image: Required value" in unnamed.stderr
        assert 'Invalid value: "replace this with your on-demand pool (docs/install.md)"' in unnamed.stderr
    finally:
        kubectl("delete", "namespace", NAMESPACE)
    installation.copy("gke")
    installation.choose("audit-only\n  - ../../components/strict", instead_of="audit-only")
    both = kubectl.run("apply", f"--kustomize={installation.kustomization.parent}")
    (said,) = re.findall(r"kustomize fails: `(.*?)`", PAGE["Audit, warn, deny"])
    assert both.returncode == 1
    assert re.search(rf"/components/strict': .*{said}", both.stderr)
