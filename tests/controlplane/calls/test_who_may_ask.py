"""With a client CA, spotgate answers only the API server."""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from certs.authority import create_authority, issue_leaf
from tests.controlplane.harness.api import Api, pods_in
from tests.controlplane.harness.forked import ForkedSpotgate
from tests.controlplane.harness.webhook import NAMESPACE, SERVICE, Webhook, start_on_free_ports
from tests.server.harness import put, write_policy
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

HOST = f"{SERVICE}.{NAMESPACE}.svc"
CLIENT = "kube-apiserver.kube-system"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A bare cluster that stores Pods in namespace default only after spotgate has evaluated them."""

    api: Api
    webhook: Webhook
    port: int

    def create(self, *, labelled: bool) -> str:
        """Try to create a Pod, and return the outcome: ``denied``, ``allowed``, or the error."""
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-", "labels": {"reserved.example.com/x": "1"} if labelled else {}},
            "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
        }
        answer = self.api.send("POST", pods_in("default"), pod, dry_run=True)
        if answer.status == 201:
            return "allowed"
        return "denied" if "denied the request" in answer.message else answer.message

    def is_called(self) -> bool:
        return (self.create(labelled=True), self.create(labelled=False)) == ("denied", "allowed")


@pytest.fixture
def client_ca() -> trustme.CA:
    """Create the CA of the API server's client certificate."""
    return trustme.CA()


@pytest.fixture
def guarded(bare_cluster: Cluster, tmp_path: Path, client_ca: trustme.CA) -> Iterator[Guarded]:
    """Start spotgate with the client CA, and make the cluster depend on it for Pods."""
    authority = create_authority(utc_now())
    pair = issue_leaf(authority, names=[HOST], ips=[], now=utc_now())
    write_policy(tmp_path / "policies")
    (tmp_path / "tls").mkdir()
    put(tmp_path / "tls" / "tls.crt", pair.certificate_pem.decode())
    put(tmp_path / "tls" / "tls.key", pair.key_pem.decode())
    client_ca.cert_pem.write_to_path(tmp_path / "client-ca.crt")
    process = ForkedSpotgate("spotgate", (), tmp_path / "spotgate.log")
    flags = [
        f"--policies={tmp_path / 'policies'}",
        f"--tls-cert={tmp_path / 'tls' / 'tls.crt'}",
        f"--tls-key={tmp_path / 'tls' / 'tls.key'}",
        f"--tls-name={HOST}",
        f"--kubeconfig={bare_cluster.credentials.kubeconfig('admin')}",
        f"--client-ca={tmp_path / 'client-ca.crt'}",
        f"--client-name={CLIENT}",
    ]
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        port, ops_port = start_on_free_ports(process, flags)
        webhook = Webhook(bare_cluster, tmp_path, process, port, f"127.0.0.1:{ops_port}")
        webhook.wait_until_ready()
        api = Api(bare_cluster)
        stack.enter_context(api.created(f"/api/v1/namespaces/{NAMESPACE}/services", SERVICE_OUTSIDE))
        stack.enter_context(api.created(CONFIGURATION, configuration(port, authority.certificate_pem)))
        yield Guarded(api, webhook, port)


SERVICE_OUTSIDE = {"metadata": {"name": SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}}


def configuration(port: int, ca_pem: bytes) -> dict[str, Any]:
    service = {"name": SERVICE, "namespace": NAMESPACE, "port": port, "path": "/validate"}
    return {
        "metadata": {"name": SERVICE},
        "webhooks": [
            {
                "name": "pods.spotgate.dev",
                "clientConfig": {"service": service, "caBundle": base64.b64encode(ca_pem).decode()},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                "failurePolicy": "Fail",
                "timeoutSeconds": 3,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def test_S4_with_a_client_CA_spotgate_requires_the_api_servers_certificate(
    guarded: Guarded, client_ca: trustme.CA, bare_cluster: Cluster, tmp_path: Path
) -> None:
    def is_rejected() -> bool:
        # A call can also fail because it took too long, or because the API server doesn't know the Service yet.
        failed = "failed calling webhook" in guarded.create(labelled=False)
        return failed and guarded.webhook.count("spotgate_connections_cut_total", reason="client certificate") > 0

    guarded.webhook.wait(is_rejected, "spotgate rejects the API server")
    assert guarded.webhook.count("spotgate_decisions_total") == 0

    # The files from docs/securing.md; a port other than 443 is part of the name.
    client = client_ca.issue_cert(CLIENT)
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.crt")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    user = {"client-certificate": str(tmp_path / "client.crt"), "client-key": str(tmp_path / "client.key")}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": f"{HOST}:{guarded.port}", "user": user}]}
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    plugins = [
        {
            "name": plugin,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(tmp_path / "kubeconfig"),
            },
        }
        for plugin in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    admission = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
    (tmp_path / "admission.json").write_text(json.dumps(admission))
    server = bare_cluster.processes["kube-apiserver"]
    as_it_was = server.command
    server.command = [*as_it_was, f"--admission-control-config-file={tmp_path / 'admission.json'}"]
    try:
        bare_cluster.restart("kube-apiserver")
        guarded.webhook.wait(guarded.is_called, "the API server asks")
    finally:
        server.command = as_it_was
        bare_cluster.restart("kube-apiserver")
    decided = [json.loads(line) for line in guarded.webhook.process.log.read_text().splitlines() if "decision" in line]
    assert {line["caller"] for line in decided} == {CLIENT}
    assert guarded.webhook.count("spotgate_decisions_total", caller="unauthenticated") == 0
