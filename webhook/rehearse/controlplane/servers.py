"""Build the command lines of a control plane's servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.rehearse.controlplane.credentials import Credentials

NO_SERVICE_ACCOUNTS: Final = "--disable-admission-plugins=ServiceAccount"
"""For an API server without a ServiceAccount controller: Pods need no ServiceAccount."""


def etcd(directory: Path, *, port: int, peer_port: int) -> list[str]:
    """Return the flags of etcd for these two reserved ports."""
    client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--socket-reuse-port",
        "--unsafe-no-fsync",  # the data is temporary
        "--log-level=error",
    ]


def api_server(credentials: Credentials, *, port: int, etcd_url: str) -> list[str]:
    """Return the flags of the API server."""
    return [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--tls-cert-file={credentials.certificate}",
        f"--tls-private-key-file={credentials.key}",
        f"--token-auth-file={credentials.token_file}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={credentials.key}",
        f"--service-account-key-file={credentials.certificate}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",  # Endpoints can't contain a loopback address
    ]


def controller_manager(credentials: Credentials) -> list[str]:
    """Return the flags of kube-controller-manager. Each controller uses its ServiceAccount, as in real clusters."""
    return [
        f"--kubeconfig={credentials.kubeconfig('system:kube-controller-manager')}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={credentials.key}",
        f"--root-ca-file={credentials.authority}",
        # At the default of 20 requests per second, the controllers take 5 s to start: each requests a token first.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--node-monitor-grace-period=5m",  # a busy machine must not make Nodes NotReady
        "--leader-elect=false",
        "--secure-port=0",
    ]


def scheduler(credentials: Credentials, config: Path, *, port: int) -> list[str]:
    """Return the flags of the scheduler. It serves metrics without authorization, with the API server's certificate."""
    return [
        f"--config={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--tls-cert-file={credentials.certificate}",
        f"--tls-private-key-file={credentials.key}",
        "--authorization-always-allow-paths=/metrics",
    ]


def kwok(credentials: Credentials, stages: Path) -> list[str]:
    """Return the flags of KWOK, which simulates the kubelet of every Node according to the stages."""
    return [
        f"--kubeconfig={credentials.kubeconfig('kwok')}",
        f"--config={stages}",
        "--manage-all-nodes",
        "--v=WARN",
    ]
