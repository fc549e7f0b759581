"""Start the control plane of one run: load the cluster into etcd, then start the Kubernetes components."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec

from webhook.base.exits import CannotJudgeError
from webhook.inputs.objects import read_manifests
from webhook.registration.configurations import configurations
from webhook.rehearse.controlplane.control_plane import (
    NO_SERVICE_ACCOUNTS,
    ControlPlane,
    ControlPlaneError,
    fetch,
    reserve_control_plane,
)
from webhook.rehearse.controlplane.process import reserve_port
from webhook.rehearse.inputs.nodes import CREATED
from webhook.rehearse.inputs.resources import JSON, kind_of_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.engine.bundle import Bundle
    from webhook.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.rehearse.options import RehearseOptions
    from webhook.rehearse.runs.programs import Programs

Pairs = list[tuple[bytes, bytes]]
"""The keys and values of etcd."""

STAGES: Final = Path(__file__).with_name("stages.yaml")

_FLAGS: Final = msgspec.yaml.decode(Path(__file__).with_name("servers.yaml").read_bytes(), type=dict[str, list[str]])
_SCHEDULER: Final = msgspec.yaml.decode(Path(__file__).with_name("scheduler.yaml").read_bytes(), type=dict[str, Any])
_QUOTA_CONTROLLER: Final = "resourcequota-controller"
_SERVE: Final = "import sys; from webhook.commands import main; sys.exit(main())"
_WEBHOOK_KEY: Final = b"/registry/mutatingwebhookconfigurations/spotgate"
_EVENTS: Final = b"/registry/events/"
_QUOTAS: Final = b"/registry/resourcequotas/"
_PREFIX: Final = b"/registry/"
_BATCH: Final = 64
"""The number of writes in a transaction; etcd allows 128, and 1.5 MB."""


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """The control plane of a run.

    Attributes:
        plane: the processes.
        metrics: the URL of the scheduler's metrics.
        scheduler_names: the names of the scheduler's profiles.
    """

    plane: ControlPlane
    metrics: str
    scheduler_names: frozenset[str]

    def count_quotas(self, *, pause: bool) -> None:
        """Pause or resume the quota controller.

        A count misses Pods that are being created, and the next count is minutes later: quotas would admit too many.
        """
        os.kill(self.plane.processes[_QUOTA_CONTROLLER].pid, signal.SIGSTOP if pause else signal.SIGCONT)

    def contents(self) -> Pairs:
        """Return the contents of etcd as the start of another run. Raise ControlPlaneError."""
        last = _PREFIX[:-1] + bytes([_PREFIX[-1] + 1])
        answer = _ask_etcd(self.plane, "range", {"key": _encoded(_PREFIX), "range_end": _encoded(last)})
        pairs = ((base64.b64decode(entry["key"]), base64.b64decode(entry["value"])) for entry in answer.get("kvs", ()))
        return [pair for pair in pairs if pair[0] != _WEBHOOK_KEY and not pair[0].startswith(_EVENTS)]


@contextlib.contextmanager
def start_rehearsal_cluster(
    contents: Pairs, snapshot: ClusterSnapshot, programs: Programs, options: RehearseOptions
) -> Iterator[RunningCluster]:
    """Yield a running control plane with these contents in etcd. Remove it afterwards.

    The webhook reads the state of the cluster from the snapshot. Raise ControlPlaneError if a server doesn't start, and
    CannotJudgeError if the scheduler's configuration is invalid.
    """
    with reserve_control_plane(programs.paths) as plane, reserve_port() as metrics:
        port = metrics.getsockname()[1]
        config = _scheduler_config(plane, options.scheduler_config)
        plane.start_etcd()
        webhook = _start_webhook(plane, options, snapshot)
        own = (_WEBHOOK_KEY, json.dumps(_configuration(snapshot.bundle, plane, webhook)).encode())
        plane.wait_for("etcd", lambda: fetch(f"{plane.etcd_url}/health"))
        _load(plane, (*contents, own))
        plane.start_api_server(NO_SERVICE_ACCOUNTS, *_FLAGS["kube-apiserver"])
        manager = [*plane.flags_of("kube-controller-manager"), *_FLAGS["kube-controller-manager"]]
        plane.start("kube-controller-manager", [*manager, f"--controllers={','.join(_FLAGS['controllers'])}"])
        if any(key.startswith(_QUOTAS) for key, _ in contents):
            quotas = [*manager, f"--controllers={_QUOTA_CONTROLLER}"]
            plane.start(_QUOTA_CONTROLLER, quotas, program="kube-controller-manager")
        plane.start("kube-scheduler", plane.flags_of("kube-scheduler", config=config, port=port))
        plane.start("kwok", plane.flags_of("kwok", stages=STAGES))
        names = frozenset(profile["schedulerName"] for profile in json.loads(config.read_text())["profiles"])
        yield RunningCluster(plane, f"https://127.0.0.1:{port}/metrics", names)


def _scheduler_config(plane: ControlPlane, given: Path | None) -> Path:
    """Write the given or default configuration of the scheduler, adapted to this control plane. Return its path."""
    config: dict[str, Any] = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    if given is not None:
        manifests = read_manifests([given])
        configs = [manifest.value for manifest in manifests.objects if manifest.kind == config["kind"]]
        if not configs:
            why = f"{given}: isn't a KubeSchedulerConfiguration; pass the file of kube-scheduler's --config"
            raise CannotJudgeError("\n".join(map(str, manifests.problems)) or why)
        config = configs[0]
    kubeconfig = {"kubeconfig": str(plane.credentials.kubeconfig("system:kube-scheduler"))}
    profiles = config.get("profiles") or [{}]
    config |= {
        **_SCHEDULER,
        "clientConnection": _SCHEDULER["clientConnection"] | kubeconfig,
        "profiles": [{"schedulerName": "default-scheduler", **profile} for profile in profiles],
    }
    path = plane.directory / "scheduler.json"
    path.write_text(json.dumps(config))
    return path


def _start_webhook(plane: ControlPlane, options: RehearseOptions, snapshot: ClusterSnapshot) -> int:
    """Start the webhook with the API server's certificate. Return its port. Raise ControlPlaneError."""
    state = plane.directory / "state.json"
    state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(snapshot.state)}))
    plane.start(
        "spotgate",
        [
            *("-c", _SERVE, "serve", "--listen=127.0.0.1:0", "--ops=127.0.0.1:0", f"--state={state}"),
            *(f"--tls-cert={plane.credentials.certificate}", f"--tls-key={plane.credentials.key}"),
            *(f"--policies={path}" for path in options.policies),
            f"--cluster={options.cluster}",
        ],
        program=sys.executable,
    )
    return plane.wait_for("spotgate", lambda: _port_in(plane.directory / "spotgate.log"))


def _port_in(log: Path) -> int | None:
    entries = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return next((entry["port"] for entry in entries if entry.get("event") == "listening"), None)


def _configuration(bundle: Bundle, plane: ControlPlane, port: int) -> JSON:
    """Return the MutatingWebhookConfiguration that calls spotgate on this port."""
    trust = {"caBundle": base64.b64encode(plane.credentials.authority.read_bytes()).decode()}
    configuration = next(iter(configurations(bundle, {"service": {"name": "spotgate", "namespace": "x"}})))
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", **trust}
    configuration["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000001", "creationTimestamp": CREATED}
    return configuration


def pairs_of(objects: Iterable[JSON]) -> Pairs:
    """Return the etcd key and value of each object."""
    kinds = ((kind_of_object(value), value) for value in objects)
    return [(kind.key(value["metadata"]).encode(), msgspec.json.encode(value)) for kind, value in kinds if kind]


def _load(plane: ControlPlane, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write these pairs to etcd before the API server starts: 10,000 objects in seconds. Raise ControlPlaneError.

    The API server reads JSON from etcd like its own encoding, then converts and defaults it.
    """
    rest = iter(pairs)
    while batch := list(islice(rest, _BATCH)):
        puts = [{"requestPut": {"key": _encoded(key), "value": _encoded(value)}} for key, value in batch]
        _ask_etcd(plane, "txn", {"success": puts})


def _ask_etcd(plane: ControlPlane, path: str, body: JSON) -> JSON:
    try:
        with urlopen(f"{plane.etcd_url}/v3/kv/{path}", msgspec.json.encode(body)) as response:  # noqa: S310 - loopback
            answer: JSON = msgspec.json.decode(response.read())
            return answer
    except HTTPError as error:
        raise ControlPlaneError(f"etcd rejects an object: {error.read(300).decode(errors='replace')}") from None


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
