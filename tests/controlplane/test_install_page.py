"""docs/install.md and docs/certificates.md, command by command: from nothing to a denied `kubectl apply`, and to nothing again.

Nothing runs in the Pods of this cluster. One replica beside it stands for them, so what is applied has two patches more: the
Service is a name of this host, and the webhooks name the port of the replica.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from bench.chaos_cert_manager import cert_manager, mounted_certificate
from tests.cli.replay import test_replay as recorded_reviews
from tests.controlplane.cluster import Cluster, start_cluster
from tests.controlplane.kubectl import Result, as_list
from tests.controlplane.populate import populate
from tests.controlplane.tools import find_tools
from tests.controlplane.webhook import (
    BASE,
    CERTIFICATES,
    CONFIGURATIONS,
    KINDS,
    NAMESPACE,
    Webhook,
    start_on_free_ports,
)
from tests.objects import pod, saying
from tests.programs import without
from webhook.controlplane.binaries import BinariesError
from webhook.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT: Final = Path(__file__).parents[2]
SECTION: Final = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PAGE, CERTIFICATES_PAGE, OPERATE = (
    dict(SECTION.findall((ROOT / "docs" / page).read_text()))
    for page in ("install.md", "certificates.md", "operate.md")
)
WEBHOOKS: Final = sum(len(each["webhooks"]) for each in yaml.safe_load_all(CONFIGURATIONS.read_text()))
DENIED: Final = "denied the request: [reserved-labels]"
RESERVED: Final = saying(pod("labelled"), {"foo.coreweave.cloud/bar": "x"})


@pytest.fixture(scope="module")
def own(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield a cluster with nothing in it but nodes."""
    with start_cluster(binaries) as running:
        populate(running.kubectl)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkout, and in it the kustomization that the page shows. There is no registry: `docker` does nothing."""
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    (shown,) = re.findall(r"`my-cluster/kustomization.yaml`\n\n```yaml\n(.*?)```", PAGE["With kustomize"], re.DOTALL)
    (tmp_path / "my-cluster").mkdir()
    (tmp_path / "my-cluster" / "kustomization.yaml").write_text(shown)
    (tmp_path / "recorded").mkdir()
    reviews = [recorded_reviews.labelled(domain="coreweave.cloud"), recorded_reviews.on_spot()]
    (tmp_path / "recorded" / "reviews.jsonl").write_bytes(recorded_reviews.record(tmp_path / "policies", reviews))
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    return tmp_path


def commands(section: str) -> list[str]:
    return re.findall(r"^\$ (.*)$", section, re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Installation:
    """What a user has: a cluster, a checkout, and programs on the PATH."""

    own: Cluster
    folder: Path

    def carry_out(self, command: str) -> str:
        """Run a command of a page. Return what it prints; raises AssertionError if it fails."""
        path = f"{self.folder / 'bin'}:{self.own.kubectl.program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = os.environ | {"PATH": path, "KUBECONFIG": str(self.own.kubectl.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @property
    def kustomization(self) -> Path:
        return self.folder / "my-cluster" / "kustomization.yaml"

    def choose(self, *components: str, **others: object) -> None:
        """Write other components, and more, into the kustomization of the page."""
        written = yaml.safe_load(self.kustomization.read_text())
        written["components"] = [f"../manifests/components/{each}" for each in components]
        self.kustomization.write_text(yaml.safe_dump(written | others))

    def call(self, port: int) -> None:
        """Have the kustomization point the API server at a replica outside of the cluster."""
        written = yaml.safe_load(self.kustomization.read_text())
        external = {"op": "replace", "path": "/spec", "value": {"type": "ExternalName", "externalName": "localhost"}}
        counts = {each["kind"]: len(each["webhooks"]) for each in yaml.safe_load_all(CONFIGURATIONS.read_text())}
        there = {
            kind: [
                {"op": "replace", "path": f"/webhooks/{number}/clientConfig/service/port", "value": port}
                for number in range(count)
            ]
            for kind, count in counts.items()
        }
        patches = [
            {"target": {"kind": kind, "name": "spotgate"}, "patch": yaml.safe_dump(operations)}
            for kind, operations in {"Service": [external], **there}.items()
        ]
        self.kustomization.write_text(yaml.safe_dump(written | {"patches": [*written.get("patches", ()), *patches]}))

    @contextlib.contextmanager
    def replica(self, *certificate: str) -> Iterator[Webhook]:
        """Run a replica as the Pods of the Deployment would run, with the ConfigMap as it is."""
        process = Process("spotgate", (), self.folder / "spotgate.log")
        served = self.folder / "served"
        served.mkdir()
        self.mount_policies()
        flags = [
            *certificate,
            f"--policies={served}",
            f"--tls-name=spotgate.{NAMESPACE}.svc",
            f"--kubeconfig={self.own.as_service_account(NAMESPACE, 'spotgate').kubeconfig}",
        ]
        try:
            port, ops = start_on_free_ports(process, flags)
            yield Webhook(self.own, self.folder, process, port, f"127.0.0.1:{ops}")
        finally:
            process.kill()

    def mount_policies(self) -> None:
        """Do what the kubelet does with a changed ConfigMap."""
        data = self.own.kubectl.get("configmap", "spotgate-policies", f"--namespace={NAMESPACE}")["data"]
        for name, text in data.items():
            (self.folder / "served" / name).write_text(text)
        for gone in {each.name for each in (self.folder / "served").iterdir()} - data.keys():
            (self.folder / "served" / gone).unlink()

    def ask(self) -> Result:
        """Apply a Pod with a reserved label, without storing it."""
        return self.own.kubectl.run("apply", "--dry-run=server", "--filename=-", documents=as_list(RESERVED))

    def wait_for(self, said: str, replica: Webhook) -> None:
        """Wait until kubectl says so of that Pod."""
        replica.wait(lambda: said in self.ask().stderr, f"kubectl says {said}")

    def wait_for_audit(self, replica: Webhook) -> None:
        """Wait until that Pod is audited; nothing is said of it."""

        def is_audited() -> bool:
            assert self.ask() == Result(0, "pod/labelled created (server dry run)\n", "")
            return replica.count("spotgate_findings_total", id="reserved-labels/reserved", outcome="audit") > 0

        replica.wait(is_audited, "a finding is audited")

    def failure_policies(self) -> set[str]:
        """Return which validating webhooks reject what spotgate does not answer."""
        stored = self.own.kubectl.get("validatingwebhookconfiguration", "spotgate")["webhooks"]
        return {each["name"].partition(".")[0] for each in stored if each["failurePolicy"] == "Fail"}

    def is_removed(self) -> bool:
        """Wait for the namespace to go; return whether no object of any kind has our label or name."""
        self.own.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=60s")
        kinds = self.own.kubectl("api-resources", "--verbs=list", "--output=name").split()
        listed = self.own.kubectl("get", ",".join(kinds), "--all-namespaces", "--ignore-not-found", "--output=name")
        assert len(listed.split()) > 50  # of Kubernetes itself
        return not [name for name in listed.split() if "spotgate" in name]


@pytest.fixture
def installation(own: Cluster, folder: Path) -> Installation:
    return Installation(own, folder)


SECRET: Final = f"--tls-secret={NAMESPACE}/{CERTIFICATES}"


def remove(installation: Installation) -> None:
    kustomize, _ = OPERATE["Remove"].split("With Helm")
    for command in commands(kustomize):
        installation.carry_out(command)
    assert installation.is_removed()


def test_from_nothing_through_every_mode_to_nothing(installation: Installation) -> None:
    """GKE, as the page has it, with certificates that the replicas manage."""
    *build, apply, rolled_out, doctor = commands(PAGE["With kustomize"])
    for command in (*build, apply, rolled_out):
        installation.carry_out(command)
    assert installation.ask().returncode == 0  # nobody answers, and nothing is held up
    with installation.replica(SECRET) as replica:
        installation.call(replica.port)
        for command in commands(CERTIFICATES_PAGE["Self-managed"]):
            installation.carry_out(command)
        installation.wait_for_audit(replica)
        assert installation.failure_policies() == set()
        for modes, times, answer in ((["warn-only"], 1, "Warning: [reserved-labels]"), ([], 3, DENIED)):
            installation.choose("gke", "self-managed", *modes)
            for _ in range(times):
                installation.carry_out(apply)
            installation.mount_policies()
            installation.wait_for(answer, replica)
        assert installation.failure_policies() == {"node-pools"}
        # The probes and the configurations are fine; the Pods of this cluster answer nothing.
        checks = installation.carry_out(f"{doctor} | cat").splitlines()
        assert {line.split()[0] for line in checks if line.split()[1] in {"MutatingWebhookConfiguration", "probe"}} == {
            "ok"
        }
        operate = [
            command for name in ("Upgrade", "Certificate", "Refused bundle") for command in commands(OPERATE[name])
        ]
        for command in operate:
            if "--secret" not in command:  # that is for other ways of certificates
                installation.carry_out(command)
        # On the network of the hosts Pods are not restricted, and have one port on each.
        installation.choose("eks-overlay-cni", "self-managed", "strict")
        for command in (apply, rolled_out):
            installation.carry_out(command)
    assert installation.failure_policies() == {"node-pools", "namespaces", "workloads", "spot-namespaces"}
    assert "failed calling webhook" in installation.ask().stderr
    (stop,) = commands(PAGE["When something is wrong"])
    installation.carry_out(stop)
    assert installation.ask().returncode == 0
    remove(installation)


def test_from_nothing_to_a_denial_with_provided_certificates(installation: Installation) -> None:
    """CKS, on the on-demand pool that the page names, which has two hosts here."""
    (pool,) = re.findall(r"```yaml\n(patches:.*?)```", PAGE["With kustomize"], re.DOTALL)
    two = {"replicas": [{"name": "spotgate", "count": 2}]}
    installation.choose("cks", "provided-certs", **yaml.safe_load(pool), **two)
    issued, applied = CERTIFICATES_PAGE["Provided"].split("The Secret goes")
    for command in commands(issued):
        installation.carry_out(command)
    apply, create, *others = commands(applied)
    installation.carry_out(apply)
    installation.carry_out(create)
    with installation.replica(
        "--tls-cert=" + str(installation.folder / "tls.crt"), f"--tls-key={installation.folder / 'tls.key'}"
    ) as replica:
        for command in others:
            installation.carry_out(command)
        installation.call(replica.port)
        authority = base64.b64encode((installation.folder / "ca.crt").read_bytes()).decode()
        for _ in range(3):
            installation.carry_out(apply)
            stored = [hook for each in installation.own.kubectl.get(KINDS)["items"] for hook in each["webhooks"]]
            assert [each["clientConfig"]["caBundle"] for each in stored] == [authority] * WEBHOOKS
        installation.wait_for(DENIED, replica)
    hosts = {
        each["spec"]["nodeName"] for each in installation.own.kubectl.get("pods", f"--namespace={NAMESPACE}")["items"]
    }
    assert len(hosts) == 2
    assert all(host.startswith("cpu-control-plane") for host in hosts)
    remove(installation)


def test_from_nothing_to_a_denial_with_cert_manager(installation: Installation) -> None:
    """AKS, with the annotation that has its admissions enforcer leave the webhooks alone."""
    try:
        find_tools(["cert-manager"])
    except BinariesError as error:
        raise without(error) from None
    installation.choose("aks", "cert-manager")
    with cert_manager(installation.own):
        apply, *others = commands(CERTIFICATES_PAGE["cert-manager"])
        for command in (apply, *others):
            installation.carry_out(command)
        folder = installation.folder
        with (
            mounted_certificate(installation.own, folder),
            installation.replica(f"--tls-cert={folder / 'tls.crt'}", f"--tls-key={folder / 'tls.key'}") as replica,
        ):
            installation.call(replica.port)
            for _ in range(3):
                installation.carry_out(apply)
            installation.wait_for(DENIED, replica)
        annotations = [each["metadata"]["annotations"] for each in installation.own.kubectl.get(KINDS)["items"]]
        assert [each["admissions.enforcer/disabled"] for each in annotations] == ["true", "true"]
        remove(installation)


def test_the_chart_from_nothing_through_every_mode_to_nothing(installation: Installation, helm: Path) -> None:
    (installation.folder / "bin" / "helm").symlink_to(helm)
    namespace, install, rolled_out = commands(PAGE["With Helm"])
    for command in (namespace, install, rolled_out):
        installation.carry_out(command)
    with installation.replica(SECRET) as replica:
        kubectl = installation.own.kubectl
        external = '{"spec": {"type": "ExternalName", "externalName": "localhost"}}'
        kubectl("patch", "service", "spotgate", f"--namespace={NAMESPACE}", f"--patch={external}")
        rendered = CONFIGURATIONS.read_text().replace("port: 443", f"port: {replica.port}")
        (installation.folder / "webhooks.yaml").write_text(rendered)
        upgrade = f"helm upgrade spotgate manifests/chart -n {NAMESPACE} --reset-then-reuse-values"
        installation.carry_out(f"{upgrade} --set-file webhooks=webhooks.yaml")
        installation.wait_for_audit(replica)
        for command in commands(PAGE["Audit, warn, deny"]):
            installation.carry_out(command)
            installation.mount_policies()
        installation.wait_for(DENIED, replica)
        assert installation.failure_policies() == {"node-pools"}
        # What `helm template` prints is the same again.
        image = re.findall(r"image\.repository=\S+", install)[0]
        values = f"--set {image},platform=gke,enforcement=deny --set-file webhooks=webhooks.yaml"
        template = f"helm template spotgate manifests/chart -n {NAMESPACE} {values}"
        changed = installation.carry_out(
            f"{template} | kubectl diff --server-side --force-conflicts -f - || [ $? = 1 ]"
        )
        assert not re.findall(r"^[+-]  (?!  *generation|.*managedFields).*", changed, re.MULTILINE), changed
    uninstall = commands(OPERATE["Remove"].split("With Helm")[1].split("Nothing is left")[0])
    for command in uninstall:
        installation.carry_out(command)
    assert installation.is_removed()


def test_the_gate_of_an_upgrade_stops_policies_that_change_a_verdict(installation: Installation) -> None:
    gate, *_ = commands(OPERATE["Upgrade"])
    (installation.folder / "policies" / "reserved-labels.yaml").unlink()
    with pytest.raises(AssertionError, match=r"denied -> allowed"):
        installation.carry_out(gate)


def test_an_image_or_a_pool_that_nobody_named_is_refused_aloud(installation: Installation) -> None:
    kubectl = installation.own.kubectl
    kubectl("create", "namespace", NAMESPACE)
    try:
        unnamed = kubectl.run("apply", "--dry-run=server", f"--kustomize={BASE}")
        assert (
            'The Deployment "spotgate" is invalid: spec.template.spec.containers[0].image: Required value'
            in unnamed.stderr
        )
        installation.choose("cks", "provided-certs")
        unnamed = kubectl.run("apply", "--dry-run=server", f"--kustomize={installation.kustomization.parent}")
        assert 'Invalid value: "replace this with your on-demand pool (docs/install.md)"' in unnamed.stderr
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")  # the cluster goes with this test
