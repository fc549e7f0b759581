"""The chart in a namespace with another name than spotgate-system: the webhook finds the controller's Lease."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.builders import deployment, labeled
from tests.controlplane.harness.forked import ForkedSpotgate
from tests.controlplane.harness.pages import ROOT, Terminal, commands, sections
from tests.controlplane.harness.webhook import BASE, CONFIGURATIONS, SPOTGATE, Webhook, start_on_free_ports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

PLATFORM: Final = "platform"
VALUES: Final = (
    "image.repository=registry.example.com/spotgate,platform=cks,onDemandPool=cpu-control-plane,enforcement=deny,"
    "onDemandFloor.enabled=true"
)
FLOOR: Final = {"spotgate.dev/on-demand-floor": "1"}


def flags_of(cluster: Cluster, name: str) -> list[str]:
    """Return the flags of a Deployment's Pods, for a process outside of the cluster."""
    spec = cluster.kubectl.get("deployment", name, f"--namespace={PLATFORM}")["spec"]["template"]["spec"]
    kubeconfig = f"--kubeconfig={cluster.as_service_account(PLATFORM, name).kubeconfig}"
    _, *arguments = spec["containers"][0]["args"]
    return [text.replace("$(POD_NAMESPACE)", PLATFORM).replace("--in-cluster", kubeconfig) for text in arguments]


def test_a_deployment_keeps_its_floor(cluster: Cluster, helm: Path, tmp_path: Path) -> None:
    kubectl = replace(cluster.kubectl, namespace="default")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "helm").symlink_to(helm)
    namespace = (BASE / "namespace.yaml").read_text().replace("spotgate-system", PLATFORM)
    kubectl("apply", "--filename=-", documents=namespace)
    install = f"helm install spotgate {ROOT / 'manifests' / 'chart'} -n {PLATFORM} --set {VALUES}"
    terminal = Terminal(kubectl, tmp_path)
    terminal.run(install)
    external = '{"spec": {"type": "ExternalName", "externalName": "localhost"}}'
    kubectl("patch", "service", "spotgate", f"--namespace={PLATFORM}", f"--patch={external}")
    process = ForkedSpotgate("spotgate", (), tmp_path / "spotgate.log")
    flags = flags_of(cluster, "spotgate-on-demand-floor")
    command = (str(SPOTGATE), "controller", *flags, "--ops=127.0.0.1:0")
    leader = ForkedSpotgate("controller", command, tmp_path / "controller.log")
    leader.start()
    try:
        port, ops = start_on_free_ports(process, flags_of(cluster, "spotgate"))
        webhook = Webhook(cluster, tmp_path, process, port, f"127.0.0.1:{ops}")
        (tmp_path / "webhooks.yaml").write_text(CONFIGURATIONS.read_text().replace("port: 443", f"port: {port}"))
        upgrade = install.replace("helm install", "helm upgrade --reset-then-reuse-values")
        terminal.run(f"{upgrade} --set-file webhooks={tmp_path / 'webhooks.yaml'}")
        kubectl("patch", "service", "spotgate", f"--namespace={PLATFORM}", f"--patch={external}")
        webhook.wait_until_ready()
        webhook.wait_until_called()
        webhook.wait(lambda: "schedulingGates" in webhook.try_out(made())["spec"], "the webhook gates Pods")
        kubectl.apply(labeled(deployment("web", 2), {"app": "web", "spotgate.dev/capacity": "spot"}, FLOOR))
        kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        pods = kubectl.get("pods", "--selector=app=web")["items"]
        assert {pod["metadata"]["labels"]["spotgate.dev/assigned"] for pod in pods} == {"on-demand", "spot"}
        leader.kill()
        kubectl("scale", "deployment/web", "--replicas=4")
        kubectl("wait", "--for=jsonpath={.status.replicas}=4", "deployment/web", "--timeout=60s")
        uninstall, delete, release, show = commands(sections("operate.md")["Remove"].split("With Helm")[1])
        terminal.run(uninstall.replace("spotgate-system", PLATFORM))
        assert delete.startswith("kubectl delete")
        kubectl("delete", "namespace", PLATFORM)
        assert terminal.run(release) == "released 2 Pods\n"
        kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        assert terminal.run(show) == ""
    finally:
        process.kill()
        leader.kill()
        kubectl("delete", "deployment/web", "--ignore-not-found", "--cascade=foreground")


def made() -> dict[str, Any]:
    """Return a Pod as the ReplicaSet controller creates it."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": True}
    template = labeled(deployment("web", 1), {"spotgate.dev/capacity": "spot"}, FLOOR)["spec"]["template"]
    metadata = {**template["metadata"], "name": "made", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
