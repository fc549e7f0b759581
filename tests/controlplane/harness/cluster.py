"""A Kubernetes control plane for tests: etcd and API server, optionally with controllers and fake Nodes.

    with start_cluster(find_or_build()) as cluster:
        cluster.kubectl("get", "nodes")

`webhook.rehearse.controlplane.control_plane` describes how it stops.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.controlplane.harness.kubectl import Kubectl, write_preferences
from webhook.rehearse.controlplane.control_plane import (
    NO_SERVICE_ACCOUNTS,
    START_SECONDS,
    ControlPlane,
    reserve_control_plane,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STAGES = Path(__file__).with_name("stages.yaml")

# Record every write with the audit annotations of webhooks, and omit the redundant stage RequestReceived.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}, {"group": "", "resources": ["events"]}]},
        {"level": "Metadata"},
    ],
}

# As on GKE: in every namespace, Pods of a critical priority class need a quota that allows them.
ADMISSION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [
                    {
                        "resource": "pods",
                        "matchScopes": [
                            {
                                "scopeName": "PriorityClass",
                                "operator": "In",
                                "values": ["system-node-critical", "system-cluster-critical"],
                            }
                        ],
                    }
                ],
            },
        }
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(ControlPlane):
    """A running control plane. `kubectl` acts as its administrator."""

    kubectl: Kubectl

    def as_user(self, name: str, *groups: str) -> Kubectl:
        """Return a kubectl in which the administrator impersonates a user, who needn't exist."""
        return self._kubectl_of({"token": self.credentials.tokens["admin"], "as": name, "as-groups": groups})

    def as_service_account(self, namespace: str, name: str) -> Kubectl:
        """Return a kubectl with a token of this ServiceAccount, which must exist; the token is valid for a day."""
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h")
        return self._kubectl_of({"token": token.strip()})

    def _kubectl_of(self, user: dict[str, str | Sequence[str]]) -> Kubectl:
        kubeconfig = self.directory / f"{secrets.token_hex(4)}.kubeconfig"
        self.credentials.write_kubeconfig(kubeconfig, user)
        return replace(self.kubectl, kubeconfig=kubeconfig)

    def restart(self, name: str) -> None:
        """Kill a server and start it with the same flags. Raise ControlPlaneError if the API server doesn't become ready."""
        self.processes[name].kill()
        self.processes[name].start()
        self.wait_until_ready()

    def audit_events(self) -> list[dict[str, Any]]:
        """Return all writes so far as audit Events (level Metadata), oldest first."""
        with (self.directory / "audit.jsonl").open(encoding="utf-8") as lines:  # `splitlines` would split at U+2028
            return [json.loads(line) for line in lines]


@contextlib.contextmanager
def start_cluster(binaries: Mapping[str, Path], *, controllers: bool = True) -> Iterator[Cluster]:
    """Start a control plane and yield it when it is ready; without `controllers`, start only etcd and the API server.

    Controllers create ServiceAccounts (which Pods then require) and Pods of workloads, and KWOK pretends to run the Pods
    on the Nodes; initially there are none. Raise ControlPlaneError.
    """
    with reserve_control_plane(binaries) as plane:
        kubectl = Kubectl(binaries["kubectl"], plane.credentials.kubeconfig("admin"), plane.directory)
        write_preferences(plane.directory)
        cluster = Cluster(
            binaries=plane.binaries,
            directory=plane.directory,
            credentials=plane.credentials,
            port=plane.port,
            etcd_port=plane.etcd_port,
            peer_port=plane.peer_port,
            processes=plane.processes,
            kubectl=kubectl,
        )
        cluster.start_etcd()
        cluster.start_api_server(*_observed(cluster.directory), *([] if controllers else [NO_SERVICE_ACCOUNTS]))
        if controllers:  # starting them earlier would only take CPU time from the API server
            cluster.start("kube-controller-manager", cluster.flags_of("kube-controller-manager"))
            kubeconfig = cluster.credentials.kubeconfig("system:kube-scheduler")
            cluster.start("kube-scheduler", [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"])
            leases = "--node-lease-duration-seconds=40"  # as kubelets do; without it no Node would have a Lease
            cluster.start("kwok", [*cluster.flags_of("kwok", stages=STAGES), leases])
            timeout = f"--timeout={START_SECONDS:.0f}s"
            kubectl("wait", "--for=create", "serviceaccount/default", "--namespace=default", timeout)
        yield cluster


def _observed(directory: Path) -> list[str]:
    """Return the flags of an API server that logs all writes, and write the files that it reads."""
    audit_policy, admission = directory / "audit-policy.json", directory / "admission.json"
    audit_policy.write_text(json.dumps(AUDIT_POLICY))
    admission.write_text(json.dumps(ADMISSION))
    return [
        f"--admission-control-config-file={admission}",
        f"--audit-policy-file={audit_policy}",
        f"--audit-log-path={directory / 'audit.jsonl'}",
    ]
