"""A real node for tests: containerd and kubelet, with an API server on loopback.

    with start_node(find_programs()) as node:
        node.run("web", {"containers": [{"name": "web", "command": ["sleep", "60"]}]})

A node changes nothing outside its folder. It runs in mount and PID namespaces, which end with it, and listens nowhere.
Its Pods use the network of the machine, and an image with BusyBox and `app.sh`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import signal
import string
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.builders import BUNDLE, NOW, review
from tests.controlplane.harness.api import Api, accepted, pods_in
from tests.node.programs import CGROUPS
from webhook.engine.engine import decide
from webhook.kube.notice import ON_RECLAIM
from webhook.model.patch import apply_all
from webhook.model.review import decode_review
from webhook.rehearse.controlplane.control_plane import NO_SERVICE_ACCOUNTS, POLL_SECONDS, reserve_control_plane
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.rehearse.controlplane.control_plane import ControlPlane
    from webhook.rehearse.controlplane.process import Process

HERE: Final = Path(__file__).parent
IMAGE: Final = "localhost/busybox:1"
PODS: Final = pods_in("default")


@dataclass(frozen=True, slots=True)
class Node:
    """A running node. Its containers see the folder `log` as /log."""

    api: Api
    log: Path

    def run(self, name: str, spec: Mapping[str, Any], on_reclaim: str = "") -> None:
        """Create a Pod, and add the node and the image to its spec. A finalizer keeps its last status.

        ``on_reclaim`` is the value of this label. The webhook's engine changes the Pod accordingly.
        """
        labels = {ON_RECLAIM: on_reclaim} if on_reclaim else {}
        metadata = {"name": name, "labels": labels, "finalizers": ["test.spotgate.dev/observed"]}
        log = {"name": "log", "mountPath": "/log"}
        common = {"image": IMAGE, "imagePullPolicy": "Never"}
        placed: dict[str, Any] = {
            kind: [
                {**common, **container, "volumeMounts": [*container.get("volumeMounts", ()), log]}
                for container in spec.get(kind, ())
            ]
            for kind in ("initContainers", "containers")
        }
        placed |= {
            "nodeName": "node",
            "hostNetwork": True,
            "os": {"name": "linux"},  # `stopSignal` requires it
            "volumes": [*spec.get("volumes", ()), {"name": "log", "hostPath": {"path": str(self.log)}}],
        }
        pod = {"metadata": metadata, "spec": {**spec, **placed}}
        request = decode_review(review(pod, name=name, namespace="default"))
        apply_all(decide(request, BUNDLE.index, Context(phase=Phase.MUTATE, now=NOW)).patch, pod)
        accepted(self.api.create(PODS, pod))

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return all Pods by name."""
        return {pod["metadata"]["name"]: pod for pod in self.api.get(PODS)["items"]}


@contextlib.contextmanager
def start_node(programs: Mapping[str, Path]) -> Iterator[Node]:
    """Start a node, and yield it when it has run a Pod. Raise ControlPlaneError."""
    with reserve_control_plane(programs) as plane:
        plane.start_etcd()
        plane.start_api_server(NO_SERVICE_ACCOUNTS, "--feature-gates=ContainerStopSignals=true")
        _write_files(plane)
        namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        plane.start("node", [*namespaces, str(HERE / "start.sh"), str(plane.directory)], "unshare")
        try:
            node = Node(Api(plane), plane.directory / "log")
            node.run("probe", {"restartPolicy": "Never", "containers": [{"name": "probe", "command": ["true"]}]})
            plane.wait_for("the node", lambda: node.pods()["probe"]["status"].get("phase") == "Succeeded" or None)
            yield node
        finally:
            _end(plane.processes["node"], plane.directory / "containerd" / "io.containerd.runtime.v2.task")


def _write_files(plane: ControlPlane) -> None:
    """Write the files that `start.sh` reads."""
    folder = plane.directory
    for name in ("bin", "cni", "kubelet", "log", "pods"):
        (folder / name).mkdir()
    for name, program in plane.binaries.items():
        (folder / "bin" / name).symlink_to(program)
    (folder / "cni" / "none.conf").write_text('{"cniVersion": "0.4.0", "name": "none", "type": "none"}')
    for name in ("containerd.toml", "kubelet.yaml"):
        template = string.Template((HERE / name).read_text())
        (folder / name).write_text(template.substitute(folder=folder))
    (folder / "kubeconfig").symlink_to(plane.credentials.kubeconfig("admin"))
    _write_image(folder / "image.tar")


def _write_image(path: Path) -> None:
    """Write an archive of the image in Docker's format. Its command is that of sandboxes."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(Path(str(shutil.which("busybox"))).resolve(), "bin/busybox")
        tar.add(HERE / "app.sh", "bin/app")
        for name in ("sh", "sleep", "true"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    config = {
        "os": "linux",
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "config": {"Entrypoint": ["sleep", "3600"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    texts = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, mode="w") as tar:
        for name, data in {**texts, "layer.tar": layer.getvalue()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def _end(process: Process, tasks: Path) -> None:
    """Kill the first process in the namespaces, and with it all others. Then remove the cgroups of running containers."""
    with contextlib.suppress(OSError):  # it has ended
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    while process.exit_code is None:  # `unshare` ends after all processes in the namespace
        time.sleep(POLL_SECONDS)
    for namespace in tasks.glob("*"):
        for task in namespace.iterdir():
            for cgroup in CGROUPS.rglob(f"{namespace.name}/{task.name}"):
                cgroup.rmdir()
        for cgroup in CGROUPS.rglob(namespace.name):
            with contextlib.suppress(OSError):  # it contains other containers
                cgroup.rmdir()
