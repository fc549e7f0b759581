"""A user's installation, made with the commands of docs/install.md.

Nothing runs in the Pods of this cluster; one replica outside of it replaces them. So the kustomization has an additional
component: the Service is a name of this host, and the webhooks name the port of the replica.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.builders import labeled, pod
from tests.controlplane.harness.api import Answer, Api, pods_in
from tests.controlplane.harness.forked import ForkedSpotgate
from tests.controlplane.harness.pages import Terminal, commands, sections
from tests.controlplane.harness.webhook import CONFIGURATIONS, NAMESPACE, Webhook, start_on_free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

PAGE: Final = sections("install.md")
COPY, BUILD, APPLY, ROLLED_OUT, DOCTOR = commands(PAGE["With kustomize"])
RESERVED: Final = labeled(pod("labelled"), {"foo.coreweave.cloud/bar": "x"})


@dataclass(frozen=True, slots=True)
class Installation:
    """A user's cluster, checkout, and programs on the PATH, and the port of the replica."""

    own: Cluster
    folder: Path
    port: int

    def run(self, *commands: str) -> str:
        """Run commands of a page, and return the output of the last one. Raise AssertionError if a command fails."""
        return Terminal(self.own.kubectl, self.folder).run(*commands)

    @property
    def kustomization(self) -> Path:
        return self.folder / "manifests" / "overlays" / "my-cluster" / "kustomization.yaml"

    def copy(self, overlay: str) -> None:
        """Copy an overlay and set its image, as the page says."""
        self.run(COPY.replace("/gke ", f"/{overlay} "), BUILD)
        (image,) = re.findall(r"^images:\n.*\n", PAGE["With kustomize"], re.MULTILINE)
        self.edit(r"^images:\n.*\n", image)

    def call(self) -> None:
        """Add the component that points the API server at the replica outside of the cluster."""
        self.add("outside", outside_of_the_cluster(self.port))

    def add(self, name: str, component: dict[str, Any], after: str = r"^components:\n") -> None:
        """Add a component to the kustomization; its folder may exist already."""
        self.edit(after, rf"\g<0>  - {name}\n")
        file = self.kustomization.with_name(name) / "kustomization.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            yaml.safe_dump({"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"} | component)
        )

    def edit(self, pattern: str, replacement: str) -> None:
        """Replace the single match of a pattern in the kustomization."""
        text, times = re.subn(pattern, replacement, self.kustomization.read_text(), flags=re.MULTILINE)
        assert times == 1
        self.kustomization.write_text(text)

    def choose(self, component: str, instead_of: str) -> None:
        """Replace the line of a component with the line of another one, or delete it."""
        line = "  - ../../components/"
        self.edit(rf"^{line}{instead_of}\b.*\n", f"{line}{component}\n" if component else "")

    @contextlib.contextmanager
    def replica(self, *certificate: str) -> Iterator[Webhook]:
        """Run a replica with the flags of the Deployment's Pods."""
        process = ForkedSpotgate("spotgate", (), self.folder / "spotgate.log")
        flags = [
            *self.policies(),
            *certificate,
            f"--tls-name=spotgate.{NAMESPACE}.svc",
            f"--kubeconfig={self.own.as_service_account(NAMESPACE, 'spotgate').kubeconfig}",
        ]
        try:
            port, ops = start_on_free_ports(process, flags, self.port)
            yield Webhook(self.own, self.folder, process, port, f"127.0.0.1:{ops}")
        finally:
            process.kill()

    def policies(self, pod: dict[str, Any] | None = None) -> list[str]:
        """Return the `--policies` flags of a Pod, by default the Deployment's, with its ConfigMaps written to folders.

        Raise KubectlError if a ConfigMap is missing; a kubelet would wait for it.
        """
        pod = pod or self.pod()
        container = pod["containers"][0]
        flags = [argument for argument in container["args"] if argument.startswith("--policies=")]
        volumes = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        for mount in container["volumeMounts"]:
            if name := volumes.get(mount["name"]):
                data = self.own.kubectl.get("configmap", name, f"--namespace={NAMESPACE}").get("data", {})
                served = self.folder / "served" / name
                served.mkdir(parents=True, exist_ok=True)
                for file, text in data.items():
                    (served / file).write_text(text)
                for gone in {file.name for file in served.iterdir()} - data.keys():
                    (served / gone).unlink()
                flags = [flag.replace(mount["mountPath"], str(served)) for flag in flags]
        return flags

    def pod(self) -> dict[str, Any]:
        """Return the spec of the Deployment's Pods."""
        deployment = self.own.kubectl.get("deployment", "spotgate", f"--namespace={NAMESPACE}")
        spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
        return spec

    def roll_out(self, replica: Webhook) -> None:
        """Apply a changed ConfigMap as a kubelet does, and a changed Deployment as a rollout does."""
        before, after = replica.process.command, self.policies()
        command = [*before[:2], *after, *(flag for flag in before[2:] if not flag.startswith("--policies="))]
        if command != before:
            replica.stop()
            replica.process.command = command
            replica.start()

    def ask(self) -> Answer:
        """Create a Pod with a reserved label in a dry run."""
        return Api(self.own).create(pods_in("default"), RESERVED, dry_run=True)

    def wait_for(self, said: str, replica: Webhook) -> None:
        """Wait until a warning or a denial for that Pod contains this text."""

        def is_said() -> bool:
            answer = self.ask()
            return said in "\n".join((answer.message, *answer.warnings))

        replica.wait(is_said, said)

    def wait_for_audit(self, replica: Webhook) -> None:
        """Wait until that Pod causes an audit finding, without a warning."""

        def is_audited() -> bool:
            answer = self.ask()
            assert (answer.status, answer.warnings) == (201, [])
            return replica.count("spotgate_findings_total", id="reserved-labels/reserved", outcome="audit") > 0

        replica.wait(is_audited, "a finding is audited")

    def failure_policies(self) -> set[str]:
        """Return the names of the validating webhooks that fail closed."""
        stored = self.own.kubectl.get("validatingwebhookconfiguration", "spotgate")["webhooks"]
        return {entry["name"].partition(".")[0] for entry in stored if entry["failurePolicy"] == "Fail"}

    def is_removed(self) -> bool:
        """Wait until the namespace is gone, and return whether no object of any kind has spotgate's label or name."""
        self.own.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=60s")
        kinds = self.own.kubectl("api-resources", "--verbs=list", "--output=name").split()
        listed = self.own.kubectl("get", ",".join(kinds), "--all-namespaces", "--ignore-not-found", "--output=name")
        assert len(listed.split()) > 50  # Kubernetes' own objects
        return not [name for name in listed.split() if "spotgate" in name]


def outside_of_the_cluster(port: int) -> dict[str, Any]:
    """Return a component that points the API server at a port of this host."""
    external = {"op": "replace", "path": "/spec", "value": {"type": "ExternalName", "externalName": "localhost"}}
    operations: dict[str, list[dict[str, Any]]] = {"Service": [external]}
    for config in yaml.safe_load_all(CONFIGURATIONS.read_text()):
        paths = [f"/webhooks/{number}/clientConfig/service/port" for number in range(len(config["webhooks"]))]
        operations[config["kind"]] = [{"op": "replace", "path": path, "value": port} for path in paths]
    patches = [
        {"target": {"kind": kind, "name": "spotgate"}, "patch": yaml.safe_dump(patch)}
        for kind, patch in operations.items()
    ]
    return {"patches": patches}
