"""`spotgate doctor` on a real control plane: a healthy installation, then each thing broken, and the line that says so."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certs.authority import create_authority
from tests.controlplane.other_webhook import patching, serve
from tests.controlplane.pod_proxy import PodProxy, serve_pod_proxy
from tests.controlplane.webhook import BASE, NAMESPACE, SPOTGATE, apply_configurations
from webhook.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.controlplane.webhook import Webhook

PAGE = (Path(__file__).parents[2] / "docs" / "cli" / "doctor.md").read_text()
MUTATING, VALIDATING = "mutatingwebhookconfiguration", "validatingwebhookconfiguration"


@pytest.fixture(scope="module")
def proxy(webhook: Webhook) -> Iterator[PodProxy]:
    """Yield the API server, with the Pods of the installation behind it: each is the one process."""
    webhook.cluster.kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    with serve_pod_proxy(webhook.cluster, webhook.ops) as running:
        yield running


@pytest.fixture(autouse=True)
def _unchanged(proxy: PodProxy) -> None:
    """Alter no answer, but have the API server forget the calls that earlier tests had fail."""
    proxy.changed = {"/metrics": replacing((r"apiserver_admission_webhook_(fail_open|rejection)_count\{.*\n", ""))}
    proxy.date = ""


@pytest.fixture
def kubeconfig(proxy: PodProxy, tmp_path: Path) -> Path:
    return proxy.kubeconfig(tmp_path / "config")


def doctor(kubeconfig: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        code = main(["doctor", f"--kubeconfig={kubeconfig}", *flags])
    return subprocess.CompletedProcess(["doctor"], code, output.getvalue(), errors.getvalue())


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


def found_with(name: str, webhook: Webhook, kubeconfig: Path) -> dict[str, list[str]]:
    """Return what is not ok, as soon as this check is among it: the API server acts a moment later on what is written."""
    problems: dict[str, list[str]] = {}

    def told() -> bool:
        problems.clear()
        problems.update(found(kubeconfig))
        return name in problems

    webhook.wait(told, f"{name} is told of")
    return problems


def replacing(*changes: tuple[str, str]) -> Callable[[str], str]:
    def change(text: str) -> str:
        for pattern, replacement in changes:
            text = re.sub(pattern, replacement, text)
        return text

    return change


def test_a_healthy_installation_has_no_problem_and_nothing_is_written(proxy: PodProxy, kubeconfig: Path) -> None:
    before = len(proxy.cluster.audit_events())
    commands = re.findall(r"^\$ (spotgate doctor.*)$", PAGE, re.MULTILINE)
    assert commands == ["spotgate doctor", "spotgate doctor -o json"]  # the tests below run the other
    env = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": f"{SPOTGATE.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-c", commands[0]], env=env, capture_output=True, text=True, check=False)
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


ALTERED = {
    "/deployments/spotgate": [
        (r'"replicas":3', '"replicas":4'),
        ('"serve",', '"serve","--tls-secret=$(POD_NAMESPACE)/spotgate-certificates",'),
    ],
    "/pods?labelSelector": [(r'"nodeName":"[^"]*"', '"nodeName":"h100-spot-0"')],
    REPLICA: [
        (r'"version":"[^"]*"', '"version":"0.0.1"'),
        (r'"bundle":"[^"]*"', '"bundle":"0000"'),
        (r'(last_reload_success\{what="policies"\}) 1', r"\1 0"),
        (r"(cluster_silence_seconds) [\d.e-]+", r"\1 600"),
    ],
    "/version": [(r'"gitVersion": *"v1\.\d+', '"gitVersion":"v1.29')],
    "/api/v1/nodes?": [(r'"kubeletVersion":"v1\.\d+', '"kubeletVersion":"v1.28')],
}
OF_REPLICA = [
    "warn: it is version 0.0.1, this program ",
    "warn: it judges by bundle 0000, the ConfigMap ",
    "warn: the last reload of its policies failed",
    "warn: it last heard of the cluster 600 s",
]
TOLD = {
    "replicas": ["warn: 3 of 4 are ready"],
    "hosts": ["fail: several replicas are on h100-spot-0"],
    "capacity": ["fail: replicas run on spot: h100-spot-0"],
    "API server": ["fail: version 1.29 is older than 1.30, "],
    "ServiceAccount spotgate": [
        "fail: it may not: patch mutatingwebhookconfigurations.admissionregistration.k8s.io/",
    ],
    "clocks": [r"warn: apart from this machine: the API server by \+3[56]\d\d s, spotgate-"],
    "kubelets": ["warn: the oldest is 1.28: no native sleep"],
}


def test_what_is_not_as_it_should_be_is_one_line_each(proxy: PodProxy, kubeconfig: Path) -> None:
    proxy.changed |= {path: replacing(*changes) for path, changes in ALTERED.items()}
    proxy.date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    problems = found(kubeconfig)
    of_replicas = [problems.pop(name) for name in sorted(problems) if name.startswith("replica spotgate-")]
    assert problems.keys() == TOLD.keys()
    for texts, wanted in [
        *((problems[name], TOLD[name]) for name in TOLD),
        *((each, OF_REPLICA) for each in of_replicas),
    ]:
        for text, start in zip(texts, wanted, strict=True):
            assert re.match(start, text)
    assert len(of_replicas) == 3


def test_policies_without_a_probe_for_the_node_pools_there_are_unknown(proxy: PodProxy, kubeconfig: Path) -> None:
    proxy.changed["/apis"] = replacing(('"name":"compute.coreweave.com"', '"name":"example.com"'))
    said = "unknown: not probed: the cluster has no kind of node pool with a probe for it"
    assert found(kubeconfig) == {"probe OnDemandFallback": [said]}


def test_policies_that_can_not_be_loaded_are_told(proxy: PodProxy, kubeconfig: Path) -> None:
    broken = '"spot-suitability.yaml":"kind: SpotSuitability"'
    proxy.changed["/configmaps/"] = replacing((r'"spot-suitability\.yaml":"(?:[^"\\]|\\.)*"', broken))
    (said,) = found(kubeconfig)["policies"]
    assert said.startswith("fail: ConfigMap spotgate-system/spotgate-policies is invalid: spot-suitability.yaml:1")


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
def mended(webhook: Webhook) -> Iterator[None]:
    """Put the configurations back afterwards."""
    try:
        yield
    finally:
        webhook.cluster.kubectl("delete", f"{MUTATING},{VALIDATING}", "spotgate", "--ignore-not-found")
        apply_configurations(webhook.cluster, webhook.directory, webhook.port)
        webhook.wait_until_called()


def patch(webhook: Webhook, kind: str, changes: Any, *flags: str) -> None:
    webhook.cluster.kubectl("patch", kind, "spotgate", "--type=json", f"--patch={json.dumps(changes)}", *flags)


def test_what_is_not_as_rendered_is_named_with_its_manager_and_what_is_gone(webhook: Webhook, kubeconfig: Path) -> None:
    selector = [{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}]
    with mended(webhook):
        patch(webhook, MUTATING, selector, "--field-manager=admissionsenforcer")
        patch(webhook, VALIDATING, [{"op": "remove", "path": "/webhooks/0"}])
        changed = found_with("probe OnDemandFallback", webhook, kubeconfig)
        webhook.cluster.kubectl("delete", MUTATING, "spotgate")
        gone = found_with("probe SpotPlacement", webhook, kubeconfig)
    (difference,) = changed["MutatingWebhookConfiguration"]
    said = "fail: webhooks[mutate.spotgate.dev].namespaceSelector is not as rendered; last written by field manager "
    assert difference.startswith(f"{said}admissionsenforcer (20")
    (left_out,) = changed["system namespaces"]
    assert left_out.startswith("fail: mutate.spotgate.dev is asked about kube-node-lease, kube-system, spotgate-system")
    assert changed["ValidatingWebhookConfiguration"] == ["fail: webhook node-pools.spotgate.dev is missing"]
    let_through = "fail: on-demand-fallback/superchip is not found: the object was let through"
    assert changed["probe OnDemandFallback"] == [let_through]
    assert {name for name in changed if not name.startswith("probe ")} == {
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "system namespaces",
    }
    assert gone["MutatingWebhookConfiguration"] == ["fail: it is not there: nothing of it is enforced"]
    assert "probe GracefulTermination" in gone


def test_a_ca_that_did_not_sign_is_told_with_the_calls_that_fail(
    webhook: Webhook, proxy: PodProxy, kubeconfig: Path
) -> None:
    proxy.changed.clear()
    stranger = base64.b64encode(create_authority(datetime.now(UTC)).certificate_pem).decode()
    changes = [
        {"op": "replace", "path": f"/webhooks/{each}/clientConfig/caBundle", "value": stranger} for each in (0, 1)
    ]
    with mended(webhook):
        patch(webhook, MUTATING, changes)
        problems = found_with("probe SpotPlacement", webhook, kubeconfig)
    (of_replica,) = {tuple(texts) for name, texts in problems.items() if name.startswith("certificate of spotgate-")}
    assert len(of_replica) == 2
    assert "does not chain to the CA bundle" in of_replica[0]
    (failed,) = problems["failed calls"]
    assert re.search(r"mutate\.spotgate\.dev let through \d", failed)


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
            problems = found_with("probe SpotPlacement", webhook, kubeconfig)
        finally:
            kubectl("delete", MUTATING, "zz-undo")
    assert problems["later webhooks"] == [
        "fail: after spotgate are asked about Pods: zz-undo/undo.example.com; the probe did not keep what spotgate changes"
    ]


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
