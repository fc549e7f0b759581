"""`spotgate doctor` on a real control plane: a healthy installation, and checks that need a real API server.

tests/cli/doctor/ tests every line that doctor may print, with the answers that these tests record.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certs.authority import create_authority
from tests.cli.doctor.recorded import ANSWERS, file_of, reduced
from tests.controlplane.harness.other_webhook import patching, serve
from tests.controlplane.harness.pod_proxy import PodProxy, serve_pod_proxy
from tests.controlplane.harness.webhook import BASE, NAMESPACE, SPOTGATE, apply_configurations
from webhook.commands import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.webhook import Webhook

PAGE = (Path(__file__).parents[3] / "docs" / "cli" / "doctor.md").read_text()
MUTATING, VALIDATING = "mutatingwebhookconfiguration", "validatingwebhookconfiguration"
COMPONENT = BASE.parent / "components" / "self-managed" / "rbac.yaml"


@pytest.fixture(scope="module")
def proxy(webhook: Webhook) -> Iterator[PodProxy]:
    """Yield a proxy to the API server that sends requests for any Pod of the installation to the one process."""
    webhook.cluster.kubectl("rollout", "status", "deployment/spotgate", f"--namespace={NAMESPACE}", "--timeout=60s")
    with serve_pod_proxy(webhook.cluster, webhook.ops) as running:
        yield running


@pytest.fixture(scope="module")
def kubeconfig(proxy: PodProxy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return proxy.kubeconfig(tmp_path_factory.mktemp("doctor") / "config")


def doctor(kubeconfig: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        code = main(["doctor", f"--kubeconfig={kubeconfig}", *flags])
    return subprocess.CompletedProcess(["doctor"], code, output.getvalue(), errors.getvalue())


def problems_of(kubeconfig: Path) -> dict[str, list[str]]:
    """Return the problems as `state: what`, by check. Each failure and each warning must name a fix."""
    done = doctor(kubeconfig, "-o", "json")
    assert done.stderr == ""
    checks = json.loads(done.stdout)["checks"]
    assert done.returncode == any(check["state"] == "fail" for check in checks)
    assert all(check["fix"] for check in checks if check["state"] in {"warn", "fail"})
    result: dict[str, list[str]] = {}
    for check in checks:
        if check["state"] != "ok":
            result.setdefault(check["name"], []).append(f"{check['state']}: {check['what']}")
    return result


def test_a_healthy_installation_has_no_problem_and_doctor_writes_nothing(
    proxy: PodProxy, kubeconfig: Path, tmp_path: Path
) -> None:
    # Hide the calls that failed in earlier tests.
    counts = r"apiserver_admission_webhook_(fail_open|rejection)_count\{.*\n"
    proxy.changed["/metrics"] = lambda text: re.sub(counts, "", text)
    before = len(proxy.cluster.audit_events())
    commands = re.findall(r"^\$ (spotgate doctor.*)$", PAGE, re.MULTILINE)
    assert commands == ["spotgate doctor", "spotgate doctor -o json"]  # the tests below run the second one
    env = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": f"{SPOTGATE.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-c", commands[0]], env=env, capture_output=True, text=True, check=False)
    proxy.changed.clear()
    *lines, summary = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in lines if not line.startswith("ok ")] == []
    assert summary == f"{len(lines)} checks: {len(lines)} ok"
    written = [event for event in proxy.cluster.audit_events()[before:] if event["userAgent"].startswith("spotgate/")]
    assert written
    assert [
        event["requestURI"]
        for event in written
        if "dryRun=All" not in event["requestURI"] and "accessreviews" not in event["requestURI"]
    ] == []
    answers = reduced(proxy.answers.items())
    renewed = tmp_path / ANSWERS.name
    renewed.write_text(file_of(answers))
    assert _shape(answers) == _shape(json.loads(ANSWERS.read_text())), f"take {renewed} in place of {ANSWERS}"


def _shape(answers: dict[str, Any]) -> list[tuple[str, int]]:
    """Return each request with the status of its answer. Pod names differ between runs."""
    return sorted((re.sub("/pods/spotgate-[^:]+", "", key), answer["status"]) for key, answer in answers.items())


def test_doctor_reports_what_is_broken_as_the_api_server_acts_on_it(webhook: Webhook, kubeconfig: Path) -> None:
    """Break everything that doctor checks in one installation, and restore it."""
    kubectl = webhook.cluster.kubectl
    stranger = base64.b64encode(create_authority(datetime.now(UTC)).certificate_pem).decode()
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
        try:
            kubectl.apply(configuration)
            patch(webhook, "clusterrole", [{"op": "remove", "path": "/rules/1"}])
            selector = [{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}]
            patch(webhook, MUTATING, selector, "--field-manager=admissionsenforcer")
            names = [entry["name"] for entry in kubectl.get(VALIDATING, "spotgate")["webhooks"]]
            ca = f"/webhooks/{names.index('workloads.spotgate.dev')}/clientConfig/caBundle"
            pools = f"/webhooks/{names.index('node-pools.spotgate.dev')}"
            changes = [{"op": "replace", "path": ca, "value": stranger}, {"op": "remove", "path": pools}]
            patch(webhook, VALIDATING, changes)
            problems: dict[str, list[str]] = {}

            def reported() -> bool:  # the API server acts on a write a moment later
                problems.clear()
                problems.update(problems_of(kubeconfig))
                return {"probe SpotPlacement", "probe OnDemandFallback", "failed calls"} <= problems.keys()

            webhook.wait(reported, "doctor reports every problem")
        finally:
            kubectl("delete", f"{MUTATING},{VALIDATING}", "spotgate", "zz-undo", "--ignore-not-found")
            kubectl("apply", f"--filename={BASE / 'rbac.yaml'}", f"--namespace={NAMESPACE}")
            apply_configurations(webhook.cluster, webhook.directory, webhook.port)
            webhook.wait_until_called()
    of_certificates = [problems.pop(name) for name in sorted(problems) if name.startswith("certificate of spotgate-")]
    chain = "fail: caBundle of workloads.spotgate.dev: the certificate does not chain to the CA bundle"
    assert len(of_certificates) == 3
    assert all(text.startswith(chain) for (text,) in of_certificates)
    (difference,) = problems.pop("MutatingWebhookConfiguration")
    said = "fail: webhooks[mutate.spotgate.dev].namespaceSelector is not as rendered; last written by field manager "
    assert difference.startswith(f"{said}admissionsenforcer (20")
    (failed,) = problems.pop("failed calls")
    assert re.search(r"workloads\.spotgate\.dev failed open \d", failed)
    of_replicas = {name for name in problems if name.startswith("replica ")}  # only replicas that already looked
    assert {text for name in of_replicas for text in problems.pop(name)} <= {
        "warn: the caBundles that it last read don't trust its certificate"
    }
    probes = {name for name in problems if name.startswith("probe ")}
    assert {name.partition(" ")[2] for name in probes} == {
        *("EvictionStrategy", "NodePoolRules", "OnDemandFallback"),
        *("ReservedLabels", "SpotPlacement", "SpotSuitability"),
    }
    assert {name: text for name, (text,) in problems.items() if name not in probes} == {
        "ValidatingWebhookConfiguration": "fail: webhook node-pools.spotgate.dev is missing",
        "later webhooks": "fail: webhooks that change Pods after spotgate: zz-undo/undo.example.com; "
        "the probe did not keep what spotgate changes",
        "ServiceAccount spotgate": "fail: it lacks permissions: list poddisruptionbudgets.policy; watch poddisruptionbudgets.policy",
    }


def patch(webhook: Webhook, kind: str, changes: Any, *flags: str) -> None:
    webhook.cluster.kubectl("patch", kind, "spotgate", "--type=json", f"--patch={json.dumps(changes)}", *flags)


def test_doctor_reports_missing_permissions_until_granted(webhook: Webhook, proxy: PodProxy, tmp_path: Path) -> None:
    """Run doctor with few permissions, on a ServiceAccount without and then with those of the component."""
    kubectl = webhook.cluster.kubectl

    def may(verb: str, resource: str) -> bool:
        flags = (f"--namespace={NAMESPACE}", "--as=system:serviceaccount:default:little", "--quiet")
        return kubectl.run("auth", "can-i", verb, resource, *flags).returncode == 0

    try:
        kubectl("create", "serviceaccount", "little", "--namespace=default")
        token = kubectl("create", "token", "little", "--namespace=default").strip()
        kubeconfig = proxy.kubeconfig(tmp_path / "little", token)
        refused = doctor(kubeconfig)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert " can't be read: 403 Forbidden: deployments.apps" in refused.stderr
        assert refused.stderr.endswith("; allow it, see docs/cli/doctor.md\n")
        verbs = ("--verb=get", "--verb=list", "--resource=deployments,pods")
        kubectl("create", "role", "little", f"--namespace={NAMESPACE}", *verbs)
        reviews = ("create", "subjectaccessreviews.authorization.k8s.io")
        kubectl("create", "clusterrole", "little", f"--verb={reviews[0]}", f"--resource={reviews[1]}")
        of = "--serviceaccount=default:little"
        kubectl("create", "rolebinding", "little", f"--namespace={NAMESPACE}", "--role=little", of)
        kubectl("create", "clusterrolebinding", "little", "--clusterrole=little", of)
        # As with the component, whose permissions the test grants in between.
        proxy.changed["/deployments/spotgate"] = lambda text: text.replace(
            '"serve",', '"serve","--tls-secret=$(POD_NAMESPACE)/spotgate-certificates",'
        )
        # The API server's authorizer learns of each permission a moment later.
        webhook.wait(lambda: may("list", "pods"), "the Role is in force")
        webhook.wait(lambda: may(*reviews), "the ClusterRole is in force")
        lacking = problems_of(kubeconfig)
        kubectl("apply", f"--filename={COMPONENT}")
        webhook.wait(lambda: "ServiceAccount spotgate" not in problems_of(kubeconfig), "the permissions are in force")
    finally:
        proxy.changed.clear()
        kubectl("delete", "serviceaccount", "little", "--namespace=default", "--ignore-not-found")
        kubectl("delete", "role,rolebinding", "little", f"--namespace={NAMESPACE}", "--ignore-not-found")
        kubectl("delete", "clusterrole,clusterrolebinding", "little", "--ignore-not-found")
        kubectl("delete", f"--filename={COMPONENT}", "--ignore-not-found")
    expected = {"capacity", "certificates", "configurations", "probe ReservedLabels", "failed calls"}
    assert {*expected, "ServiceAccount spotgate"} <= lacking.keys(), lacking
    (account,) = lacking["ServiceAccount spotgate"]
    assert account == (
        "fail: it lacks permissions: patch mutatingwebhookconfigurations.admissionregistration.k8s.io/spotgate; "
        "patch validatingwebhookconfigurations.admissionregistration.k8s.io/spotgate; "
        "get secrets/spotgate-certificates in spotgate-system; patch secrets/spotgate-certificates in spotgate-system; "
        "create secrets in spotgate-system"
    )
