"""The component `rehearsal` on a real API server: the reads and writes of its CronJob, and the webhook's view of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.harness.populate import wait_for_crds
from tests.go_modules import policy_report_crds
from tests.server.conftest import spawn  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.controlplane.harness.cluster import Cluster
    from tests.server.conftest import Spawn

ROOT = Path(__file__).parents[2]
ACCOUNT = "spotgate-rehearsal"
NAMESPACE = "spotgate-system"


@pytest.fixture(scope="session")
def installed(live: Cluster) -> Cluster:
    """Install the component in the cluster under restricted Pod Security, and return the cluster."""
    kubectl = live.kubectl
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn=restricted")
    component = str(ROOT / "manifests" / "components" / "rehearsal")
    rendered = subprocess.run(
        [str(kubectl.program), "kustomize", component],
        env={"HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    applied = kubectl.run("apply", "--filename=-", documents=rendered)
    assert (applied.returncode, applied.stderr) == (0, "")  # no warning: it meets restricted Pod Security
    return live


def rehearse(spotgate: Path, cluster: Cluster) -> subprocess.CompletedProcess[str]:
    """Run the CronJob's command with its ServiceAccount."""
    pod = cluster.kubectl.get("cronjob", ACCOUNT, f"--namespace={NAMESPACE}")["spec"]["jobTemplate"]["spec"]["template"]
    flags = pod["spec"]["containers"][0]["args"]
    kubeconfig = cluster.as_service_account(NAMESPACE, pod["spec"]["serviceAccountName"]).kubeconfig
    command = [str(spotgate), *flags, f"--kubeconfig={kubeconfig}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_a_nightly_rehearsal_is_published_as_a_report_and_shown_by_the_webhook(
    spotgate: Path,
    installed: Cluster,
    spawn: Spawn,  # noqa: F811
    tmp_path: Path,
) -> None:
    kubectl = installed.kubectl
    crds = f"--filename={policy_report_crds()}"
    kubectl("apply", "--server-side", crds)
    wait_for_crds(kubectl)
    done = rehearse(spotgate, installed)
    assert done.returncode == 0, done.stderr
    assert "can't be read" not in done.stdout
    data = kubectl.get("configmap", ACCOUNT, f"--namespace={NAMESPACE}")["data"]
    published = json.loads(data["rehearsal.json"])
    assert published["pools"] == [
        {"pool": "spot-a", "nodes": 1, "pending": 2, "killedEarly": 0},
        {"pool": "spot-b", "nodes": 1, "pending": 0, "killedEarly": 0},
    ]
    report = kubectl.get("policyreport", ACCOUNT, f"--namespace={NAMESPACE}")
    assert {name: number for name, number in report["summary"].items() if number} == {"fail": 1, "pass": 1}
    failed, passed = report["results"]
    assert failed["message"] == "losing spot-a leaves 2 of 2 Pods without room"
    assert failed["resources"] == [
        {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "nightly", "name": "stuck"}
    ]
    assert passed["properties"]["pool"] == "spot-b"

    # A repeated apply keeps the result, and the ServiceAccount has written nothing else.
    kubectl("apply", f"--filename={ROOT}/manifests/components/rehearsal/configmap.yaml")
    assert kubectl.get("configmap", ACCOUNT, f"--namespace={NAMESPACE}")["data"] == data
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    asked = [event for event in installed.audit_events() if event["user"]["username"] == user]
    written = {
        (event["verb"], event["objectRef"]["resource"], event["objectRef"].get("name", ""))
        for event in asked
        if event["verb"] not in {"get", "list", "watch"}
    }
    assert written == {("patch", "configmaps", ACCOUNT), ("patch", "policyreports", ACCOUNT)}
    assert {event["objectRef"]["resource"] for event in asked if "objectRef" in event}.isdisjoint({"secrets"})

    file = tmp_path / "rehearsal.json"
    file.write_text(data["rehearsal.json"])
    served = spawn(rehearsal=file)
    assert served.metric("spotgate_rehearsal_pending_pods", pool="spot-a") == 2
    assert served.metric("spotgate_rehearsal_killed_early", pool="spot-b") == 0


@pytest.mark.parametrize(
    "asked",
    [
        f"patch configmaps/spotgate-own-policies --namespace={NAMESPACE}",
        f"get configmaps/{ACCOUNT} --namespace={NAMESPACE}",
        f"create configmaps --namespace={NAMESPACE}",
        f"patch policyreports/spotgate-audit --namespace={NAMESPACE}",
        "create policyreports --namespace=default",
        "list secrets",
        "delete pods",
        "create pods/eviction",
        "patch nodes",
    ],
)
def test_its_service_account_has_no_other_permissions(installed: Cluster, asked: str) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    assert installed.kubectl.run("auth", "can-i", *asked.split(), account).stdout == "no\n"
