"""`spotgate doctor` on a real control plane: a healthy installation, then each thing broken, and the line that says so."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certs.authority import create_authority
from tests.controlplane.cluster import start_cluster
from tests.controlplane.other_webhook import patching, serve
from tests.controlplane.pod_proxy import PodProxy, serve_pod_proxy
from tests.controlplane.populate import populate
from tests.controlplane.webhook import BASE, NAMESPACE, SPOTGATE, apply_configurations, install_webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.controlplane.webhook import Webhook

PAGE = (Path(__file__).parents[2] / "docs" / "cli" / "doctor.md").read_text()
MUTATING, VALIDATING = "mutatingwebhookconfiguration", "validatingwebhookconfiguration"


@pytest.fixture(scope="module")
def webhook(binaries: dict[str, Path]) -> Iterator[Webhook]:
    """Yield an installation in a cluster of its own: calls that failed before would be told of."""
    with start_cluster(binaries) as running:
        populate(running.kubectl)
        with install_webhook(running) as installed:
            yield installed


@pytest.fixture(scope="module")
def proxy(webhook: Webhook) -> Iterator[PodProxy]:
    """Yield the API server, with the Pods of the installation behind it: each is the one process."""
    webhook.cluster.kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    with serve_pod_proxy(webhook.cluster, webhook.ops) as running:
        yield running


@pytest.fixture(autouse=True)
def _unchanged(proxy: PodProxy) -> Iterator[None]:
    yield
    proxy.changed.clear()
    proxy.date = ""


@pytest.fixture
def kubeconfig(proxy: PodProxy, tmp_path: Path) -> Path:
    return proxy.kubeconfig(tmp_path / "config")


def doctor(kubeconfig: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPOTGATE, "doctor", f"--kubeconfig={kubeconfig}", *flags], capture_output=True, text=True, check=False
    )


def found(kubeconfig: Path) -> dict[str, list[str]]:
    """Return what is not ok, as `state: what`, by check. Each that failed or is to be looked at names a fix."""
    done = doctor(kubeconfig, "-o", "json")
    assert done.stderr == ""
    checks = json.loads(done.stdout)["checks"]
    assert done.returncode == any(each["state"] == "fail" for each in checks)
    assert all(each["fix"] for each in checks if each["state"] in {"warn", "fail"})
    result: dict[str, list[str]] = {}
    for each in checks:
        if each["state"] != "ok":
            result.setdefault(each["name"], []).append(f"{each['state']}: {each['what']}")
    return result


def replacing(pattern: str, replacement: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        return re.sub(pattern, replacement, text)

    return change


def test_a_healthy_installation_has_no_problem_and_nothing_is_written(proxy: PodProxy, kubeconfig: Path) -> None:
    before = len(proxy.cluster.audit_events())
    done = doctor(kubeconfig)
    *lines, summary = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in lines if not line.startswith("ok ")] == []
    assert summary == f"{len(lines)} checks: {len(lines)} ok"
    for said in (
        "3 of 3 are ready",
        "3 replicas on 3 hosts",
        "probe EvictionStrategy ",
        "probe GracefulTermination ",
        "probe NodePoolRules ",
        "on-demand-fallback/superchip is denied",
        "reserved-labels/reserved is denied",
        "a Pod for spot is given what places it there",
        "probe SpotSuitability ",
    ):
        assert said in done.stdout
    written = [each for each in proxy.cluster.audit_events()[before:] if each["userAgent"].startswith("spotgate/")]
    assert written
    assert [
        each["requestURI"]
        for each in written
        if "dryRun=All" not in each["requestURI"] and "accessreviews" not in each["requestURI"]
    ] == []


REPLICA = "/proxy/"


@pytest.mark.parametrize(
    ("path", "pattern", "replacement", "check", "said"),
    [
        ("/deployments/spotgate", r'"replicas":3', '"replicas":4', "replicas", "warn: 3 of 4 are ready"),
        (
            *("/pods?labelSelector", r'"nodeName":"[^"]*"', '"nodeName":"h100-0"'),
            *("hosts", "fail: several replicas are on h100-0"),
        ),
        (
            *("/pods?labelSelector", r'"nodeName":"h100-0"', '"nodeName":"h100-spot-0"'),
            *("capacity", "fail: replicas run on spot: h100-spot-0"),
        ),
        (REPLICA, r'"version":"[^"]*"', '"version":"0.0.1"', "replica", "warn: it is version 0.0.1, this program "),
        (REPLICA, r'"bundle":"[^"]*"', '"bundle":"0000"', "replica", "warn: it judges by bundle 0000, the ConfigMap "),
        (
            *(REPLICA, r'(last_reload_success\{what="policies"\}) 1', r"\1 0"),
            *("replica", "warn: the last reload of its policies failed"),
        ),
        (
            REPLICA,
            r"(cluster_silence_seconds) [\d.e-]+",
            r"\1 600",
            "replica",
            "warn: it last heard of the cluster 600 s",
        ),
        (
            "/version",
            r'"gitVersion": *"v1\.\d+',
            '"gitVersion":"v1.29',
            "API server",
            "fail: version 1.29 is older than 1.30, ",
        ),
        (
            *("/deployments/spotgate", '"serve",', '"serve","--tls-secret=$(POD_NAMESPACE)/spotgate-certificates",'),
            *(
                "ServiceAccount spotgate",
                "fail: it may not: patch mutatingwebhookconfigurations.admissionregistration.k8s.io/",
            ),
        ),
        (
            *("/apis", '"name":"compute.coreweave.com"', '"name":"example.com"'),
            *(
                "probe OnDemandFallback",
                "unknown: not probed: the cluster has no kind of node pool with a probe for it",
            ),
        ),
        (
            *("/api/v1/nodes?", r'"kubeletVersion":"v1\.\d+', '"kubeletVersion":"v1.28'),
            *("kubelets", "warn: the oldest is 1.28: no native sleep"),
        ),
    ],
    ids=[
        "replica missing",
        "one host",
        "on spot",
        "other version",
        "other bundle",
        "failed reload",
        "stale view",
        "old API server",
        "permissions for its own certificates",
        "only Karpenter's node pools",
        "old kubelet",
    ],
)
def test_what_is_not_as_it_should_be_is_one_line(
    proxy: PodProxy, kubeconfig: Path, path: str, pattern: str, replacement: str, check: str, said: str
) -> None:
    proxy.changed[path] = replacing(pattern, replacement)
    problems = found(kubeconfig)
    assert {name.partition(" spotgate-")[0] for name in problems} == {check}
    assert all(each.startswith(said) for texts in problems.values() for each in texts), problems


def test_clocks_that_are_an_hour_off_are_told(proxy: PodProxy, kubeconfig: Path) -> None:
    proxy.date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    ((name, (said,)),) = found(kubeconfig).items()
    assert name == "clocks"
    assert re.search(r"the API server by \+3[56]\d\d s, spotgate-", said)


def test_without_the_proxy_the_secret_says_what_is_served(proxy: PodProxy, kubeconfig: Path) -> None:
    proxy.changed[REPLICA] = None
    done = doctor(kubeconfig)
    assert done.returncode == 0
    assert done.stdout.count("its operators' port can't be reached: 503") == 3
    assert re.search(
        r"ok +certificate in the Secret +trusted until .*; what replicas serve can't be read: 503", done.stdout
    )


# The configurations


@contextmanager
def patched(webhook: Webhook, kind: str, patch: Any, *flags: str) -> Iterator[None]:
    """Change a configuration, and put it back."""
    kubectl = webhook.cluster.kubectl
    kubectl("patch", kind, "spotgate", "--type=json", f"--patch={json.dumps(patch)}", *flags)
    try:
        yield
    finally:
        kubectl("delete", f"{MUTATING},{VALIDATING}", "spotgate", "--ignore-not-found")
        apply_configurations(webhook.cluster, webhook.directory, webhook.port)
        webhook.wait_until_called()


def test_a_field_that_something_else_writes_is_named_with_its_manager(webhook: Webhook, kubeconfig: Path) -> None:
    patch = [{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}]
    with patched(webhook, MUTATING, patch, "--field-manager=admissionsenforcer"):
        problems = found(kubeconfig)
    (difference,) = problems["MutatingWebhookConfiguration"]
    said = "fail: webhooks[mutate.spotgate.dev].namespaceSelector is not as rendered; last written by field manager "
    assert difference.startswith(f"{said}admissionsenforcer (20")
    (left_out,) = problems["system namespaces"]
    assert left_out.startswith("fail: mutate.spotgate.dev is asked about kube-node-lease, kube-system, spotgate-system")
    assert problems.keys() == {"MutatingWebhookConfiguration", "system namespaces"}


def test_a_webhook_that_is_missing_is_named(webhook: Webhook, kubeconfig: Path) -> None:
    with patched(webhook, VALIDATING, [{"op": "remove", "path": "/webhooks/0"}]):
        problems = found(kubeconfig)
    assert problems["ValidatingWebhookConfiguration"] == ["fail: webhook node-pools.spotgate.dev is missing"]
    assert problems["probe OnDemandFallback"] == [
        "fail: on-demand-fallback/superchip is not found: the object was let through"
    ]


def test_a_configuration_that_is_gone_is_told_with_the_probes_that_it_fails(webhook: Webhook, kubeconfig: Path) -> None:
    with patched(webhook, MUTATING, []):
        webhook.cluster.kubectl("delete", MUTATING, "spotgate")
        problems = found(kubeconfig)
    assert problems["MutatingWebhookConfiguration"] == ["fail: it is not there: nothing of it is enforced"]
    assert {"probe SpotPlacement", "probe GracefulTermination"} <= problems.keys()


def test_a_ca_that_did_not_sign_is_told_with_the_calls_that_fail(webhook: Webhook, kubeconfig: Path) -> None:
    stranger = base64.b64encode(create_authority(datetime.now(UTC)).certificate_pem).decode()
    patch = [{"op": "replace", "path": f"/webhooks/{each}/clientConfig/caBundle", "value": stranger} for each in (0, 1)]
    with patched(webhook, MUTATING, patch):
        webhook.wait(lambda: "failed calls" in found(kubeconfig), "the API server uses the CA")
        problems = found(kubeconfig)
    (of_replica,) = {tuple(texts) for name, texts in problems.items() if name.startswith("certificate of spotgate-")}
    assert len(of_replica) == 2
    assert "does not chain to the CA bundle" in of_replica[0]
    (failed,) = problems["failed calls"]
    assert re.search(r"mutate\.spotgate\.dev let through \d", failed)
    assert "probe SpotPlacement" in problems


# What else is in the cluster


def test_a_later_webhook_that_undoes_the_probe_is_named(webhook: Webhook, kubeconfig: Path) -> None:
    kubectl = webhook.cluster.kubectl
    with serve() as other:
        other.answers["/undo"] = patching({"op": "add", "path": "/spec/nodeSelector", "value": {}})
        one = {
            "name": "undo.example.com",
            "clientConfig": other.client("/undo"),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "reinvocationPolicy": "IfNeeded",
        }
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "zz-undo"},
            "webhooks": [one],
        }
        kubectl.apply(configuration)
        try:
            webhook.wait(lambda: found(kubeconfig), "the API server calls the other webhook")
            problems = found(kubeconfig)
        finally:
            kubectl("delete", MUTATING, "zz-undo")
    assert problems["later webhooks"] == [
        "fail: after spotgate are asked about Pods: zz-undo/undo.example.com; the probe did not keep what spotgate changes"
    ]


def test_policies_that_can_not_be_loaded_are_told(webhook: Webhook, kubeconfig: Path) -> None:
    kubectl = webhook.cluster.kubectl
    broken = {"data": {"spot-suitability.yaml": "kind: SpotSuitability"}}
    kubectl("patch", "configmap", "spotgate-policies", f"--namespace={NAMESPACE}", f"--patch={json.dumps(broken)}")
    try:
        problems = found(kubeconfig)
    finally:
        kubectl("apply", f"--kustomize={webhook.directory / 'overlay'}")
        external = '{"spec": {"type": "ExternalName", "externalName": "localhost"}}'
        kubectl("patch", "service", "spotgate", f"--namespace={NAMESPACE}", f"--patch={external}")
    (said,) = problems["policies"]
    assert said.startswith("fail: ConfigMap spotgate-system/spotgate-policies is invalid: spot-suitability.yaml:1")


# Permissions


def test_what_the_service_account_lacks_is_named(webhook: Webhook, kubeconfig: Path) -> None:
    kubectl = webhook.cluster.kubectl
    patch = [{"op": "remove", "path": "/rules/1"}]
    kubectl("patch", "clusterrole", "spotgate", "--type=json", f"--patch={json.dumps(patch)}")
    try:
        problems = found(kubeconfig)
    finally:
        kubectl("apply", f"--filename={BASE / 'rbac.yaml'}", f"--namespace={NAMESPACE}")
    assert problems["ServiceAccount spotgate"] == [
        "fail: it may not: list poddisruptionbudgets.policy; watch poddisruptionbudgets.policy"
    ]


def test_whoever_may_little_is_told_what_is_unknown(webhook: Webhook, proxy: PodProxy, tmp_path: Path) -> None:
    kubectl = webhook.cluster.kubectl
    kubectl("create", "serviceaccount", "little", "--namespace=default")
    try:
        token = kubectl("create", "token", "little", "--namespace=default").strip()
        kubeconfig = proxy.kubeconfig(tmp_path / "little", token)
        refused = doctor(kubeconfig)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("spotgate doctor: the cluster can't be read: 403 Forbidden: deployments.apps")
        assert refused.stderr.endswith("; allow it, see docs/cli/doctor.md\n")
        verbs = ("--verb=get", "--verb=list", "--resource=deployments,pods")
        kubectl("create", "role", "little", f"--namespace={NAMESPACE}", *verbs)
        of = "--serviceaccount=default:little"
        kubectl("create", "rolebinding", "little", f"--namespace={NAMESPACE}", "--role=little", of)
        problems = found(kubeconfig)
    finally:
        kubectl("delete", "serviceaccount", "little", "--namespace=default")
        kubectl("delete", "role,rolebinding", "little", f"--namespace={NAMESPACE}", "--ignore-not-found")
    (mine,) = problems["your permissions"]
    assert "get pods/proxy in spotgate-system" in mine
    assert "create subjectaccessreviews.authorization.k8s.io" in mine
    assert {"capacity", "certificates", "configurations", "ServiceAccount", "failed calls"} <= problems.keys()
    assert not [each for texts in problems.values() for each in texts if each.startswith("fail")]


def test_a_namespace_without_spotgate_says_so(kubeconfig: Path) -> None:
    done = doctor(kubeconfig, "--namespace=default")
    assert done.returncode == 1
    assert "there is no Deployment spotgate in namespace default" in done.stdout


def test_an_api_server_that_is_not_there_is_one_line(proxy: PodProxy, tmp_path: Path) -> None:
    with serve_pod_proxy(proxy.cluster, proxy.ops) as gone:
        kubeconfig = gone.kubeconfig(tmp_path / "config")
    failed = doctor(kubeconfig)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("spotgate doctor: the cluster can't be read: ")
    assert failed.stderr.count("\n") == 1


def test_the_commands_of_the_page_do_what_it_says(kubeconfig: Path) -> None:
    commands = re.findall(r"^\$ (spotgate doctor.*)$", PAGE, re.MULTILINE)
    assert commands
    env = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": f"{SPOTGATE.parent}:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
