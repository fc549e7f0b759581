"""The command lines of a control plane's servers, and why each flag is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.controlplane.credentials import Credentials

STAGES = Path(__file__).with_name("stages.yaml")

# Every write, with the annotations that webhooks leave in it; the stage RequestReceived would only repeat them.
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

# As GKE has it: Pods of a critical priority class need a quota that allows them, in every namespace.
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


def etcd(directory: Path, *, port: int, peer_port: int) -> list[str]:
    """Return the flags of etcd, on two ports that are reserved for it."""
    client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--socket-reuse-port",
        "--unsafe-no-fsync",  # nothing is kept
        "--log-level=error",
    ]


def api_server(
    directory: Path, credentials: Credentials, *, port: int, etcd_port: int, service_accounts: bool
) -> list[str]:
    """Return the API server; with `service_accounts` a Pod must have one. Writes the files that it reads."""
    audit_policy, admission = directory / "audit-policy.json", directory / "admission.json"
    audit_policy.write_text(json.dumps(AUDIT_POLICY))
    admission.write_text(json.dumps(ADMISSION))
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--tls-cert-file={credentials.certificate}",
        f"--tls-private-key-file={credentials.key}",
        f"--token-auth-file={credentials.token_file}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        f"--service-account-key-file={credentials.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",  # Endpoints may not hold a loopback address
        f"--admission-control-config-file={admission}",
        f"--audit-policy-file={audit_policy}",
        f"--audit-log-path={directory / 'audit.jsonl'}",
        *([] if service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
    ]


def controller_manager(credentials: Credentials) -> list[str]:
    """All controllers, each under a name of its own: the one that webhooks see in real clusters."""
    return [
        f"--kubeconfig={credentials.kubeconfig('system:kube-controller-manager')}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={credentials.service_account_key}",
        f"--root-ca-file={credentials.authority}",
        # At the default of 20 requests per second they would take 5 s to start: each asks for its token first.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--node-monitor-grace-period=5m",  # no Node is lost because the machine is busy
        "--leader-elect=false",
        "--secure-port=0",
    ]


def scheduler(credentials: Credentials) -> list[str]:
    """Return the scheduler as it is by default."""
    return [
        f"--kubeconfig={credentials.kubeconfig('system:kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def kwok(credentials: Credentials) -> list[str]:
    """KWOK, which keeps every Node alive and runs the Pods on it, as stages.yaml says."""
    return [
        f"--kubeconfig={credentials.kubeconfig('kwok')}",
        f"--config={STAGES}",
        "--manage-all-nodes",
        "--node-lease-duration-seconds=40",  # as kubelets do; without it no Node would have a Lease
        "--v=WARN",
    ]
