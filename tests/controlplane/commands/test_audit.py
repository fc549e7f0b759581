"""`spotgate audit` on a real API server: its output, its reads, and its permitted writes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from tests.builders import SPOT, deployment, labeled, pod
from tests.controlplane.harness.live import admin
from tests.controlplane.harness.populate import POOLS, nodes_of, start_bare_cluster, wait_for_crds
from tests.go_modules import policy_report_crds
from webhook.cluster import source
from webhook.commands import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster

ROOT = Path(__file__).parents[3]
RESERVED = {"foo.coreweave.cloud/bar": "x"}
ASKS = {"spotgate.dev/capacity": "spot"}


class Audited(NamedTuple):
    """The exit code, the JSON from standard output, and the text from standard error."""

    code: int
    report: Any
    said: str

    @property
    def denied(self) -> list[str]:
        """The objects of all denials."""
        return [result["file"] for result in self.report["results"] if result["outcome"] == "deny"]

    @property
    def at_risk(self) -> dict[str, list[str]]:
        """The ids of the findings by the names of workloads on spot Nodes."""
        return {item["name"]: [reason["id"] for reason in item["reasons"]] for item in self.report["onSpot"]}


def audit(kubeconfig: Path, *flags: str) -> Audited:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["audit", "-o", "json", f"--kubeconfig={kubeconfig}", *flags])
    return Audited(code, json.loads(out.getvalue() or "null"), err.getvalue())


def running(name: str, owner: tuple[str, str, str] | None, node: str, **spec: Any) -> dict[str, Any]:
    """Return a Pod that runs on a Node; its owner is an apiVersion, a kind, and a name."""
    thing = pod(name, nodeName=node, **spec)
    return owned(thing, *owner) if owner is not None else thing


def owned(thing: dict[str, Any], api_version: str, kind: str, name: str) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "1", "controller": True}
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [owner]}}


def made_of(thing: dict[str, Any], nodes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a Deployment, its ReplicaSet, and its Pods, as controllers would create them."""
    name = thing["metadata"]["name"]
    spec = thing["spec"]
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": f"{name}-1"}, "spec": spec}
    yield thing
    yield owned(replica_set, "apps/v1", "Deployment", name)
    for number, node in enumerate(nodes):
        made = running(f"{name}-1-{number}", ("apps/v1", "ReplicaSet", f"{name}-1"), node, **spec["template"]["spec"])
        yield labeled(made, spec["template"]["metadata"]["labels"])


@pytest.fixture(scope="module")
def own(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield a separate control plane, because the audit evaluates everything in it and deleted objects linger."""
    with start_bare_cluster(binaries) as running:
        yield running


@pytest.fixture(scope="module")
def things(own: Cluster) -> Cluster:
    """Return a cluster with workloads on spot Nodes and elsewhere, created without a webhook."""
    kubectl = own.kubectl
    pools = [pool for pool in yaml.safe_load_all(POOLS.read_text()) if pool["metadata"]["name"] != "h100"]
    kubectl.apply(*pools, *(node for pool in pools for node in nodes_of(pool)))
    kubectl("create", "namespace", "shop")
    kubectl("create", "secret", "generic", "key", "--from-literal=a=b")
    patient = deployment("patient", 3, terminationGracePeriodSeconds=600, **SPOT)
    web = labeled(deployment("web", 1, **SPOT), ASKS)
    web["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    daemon = running("log", ("apps/v1", "DaemonSet", "log"), "cpu-spot-0")
    custom = [running(f"x-{number}", ("example.com/v1", "Thing", "x"), "cpu-control-plane-0") for number in range(2)]
    kubectl.apply(
        *made_of(labeled(patient, RESERVED), ["cpu-spot-0", "cpu-spot-1"]),
        *made_of(web, ["cpu-spot-0"]),
        *made_of(deployment("elsewhere", 1), ["cpu-control-plane-0"]),
        *(labeled(pod, RESERVED) for pod in custom),
        running("bare", None, "h100-spot-0"),
        daemon,
    )
    kubectl("label", "namespace", "shop", "team=shop")
    kubectl.apply(
        *({**pod, "metadata": {**pod["metadata"], "namespace": "shop"}} for pod in [labeled(pod("probe"), RESERVED)])
    )
    return own


DENIED = ["Pod/default/x-0", "Pod/default/x-1", "Pod/shop/probe", "Deployment/default/patient", "NodePool/h100-spot"]


def test_audit_reads_pages_and_judges_owned_objects_only_with_their_workload(
    things: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = audit(admin(things))
    assert (whole.code, whole.said) == (1, "")
    assert whole.denied == DENIED
    assert {result["line"] for result in whole.report["results"]} == {0}
    items = things.kubectl.get("namespaces")["items"]
    there = [item["metadata"] for item in items if "deletionTimestamp" not in item["metadata"]]  # by earlier tests
    system = ("kube-system", "kube-node-lease", "spotgate-system")
    namespaces = [item for item in there if item["name"] not in system and not item["name"].startswith("cw-")]
    # Deployments, Pods without an owning workload, and node pools.
    assert whole.report["summary"]["documents"] == 3 + 4 + 3 + len(namespaces)
    monkeypatch.setattr(source, "PAGE", 2)
    assert audit(admin(things)).report == whole.report


def test_audit_reports_why_workloads_on_spot_nodes_would_not_survive(things: Cluster) -> None:
    at_risk = audit(admin(things)).at_risk
    assert set(at_risk) == {"patient", "web", "bare"}  # without the DaemonSet and the Pods on other Nodes
    assert at_risk["patient"][0] == "graceful-termination/over-budget"
    assert "spot-suitability/few-replicas" in at_risk["web"]
    assert {"spot-suitability/bare-pod", "on-demand-fallback/missing"} <= set(at_risk["bare"])


def test_audit_can_be_limited_to_one_namespace(things: Cluster) -> None:
    assert audit(admin(things), "-n", "shop").denied == ["Pod/shop/probe"]
    missing = audit(admin(things), "-n", "shpo")
    assert (missing.code, missing.report) == (2, None)
    assert "-n shpo" in missing.said


@pytest.fixture
def auditor(things: Cluster) -> Iterator[Path]:
    """Create the component's CronJob under restricted Pod Security, and yield the kubeconfig of its ServiceAccount."""
    kubectl = things.kubectl
    kubectl("label", "namespace", "spotgate-system", "pod-security.kubernetes.io/warn=restricted", "--overwrite")
    program = [str(kubectl.program), "kustomize", str(ROOT / "manifests" / "components" / "audit-reports")]
    env = {"HOME": os.environ["HOME"]}
    rendered = subprocess.run(program, env=env, capture_output=True, text=True, check=True).stdout
    documents = rendered.replace('image: ""', "image: registry.example.com/spotgate@sha256:" + "0" * 64)
    applied = kubectl.run("apply", "--filename=-", documents=documents)
    assert (applied.returncode, applied.stderr) == (0, "")  # no warning: it meets restricted Pod Security
    yield things.as_service_account("spotgate-system", "spotgate-audit").kubeconfig
    kubectl("delete", "--filename=-", documents=documents)


def test_the_component_may_read_what_it_needs_and_forbidden_reads_are_reported(things: Cluster, auditor: Path) -> None:
    kubectl = things.kubectl
    assert audit(auditor).denied == DENIED
    allowed = kubectl.run(
        "auth", "can-i", "list", "secrets", "--as=system:serviceaccount:spotgate-system:spotgate-audit"
    )
    assert allowed.stdout == "no\n"

    everything = kubectl.get("clusterrole", "spotgate-audit")
    without = json.loads(json.dumps(everything["rules"]).replace('"statefulsets"', '"replicasets"'))
    kubectl.apply({**everything, "rules": without, "metadata": {"name": "spotgate-audit"}})
    partial = audit(auditor)
    assert (partial.code, partial.denied) == (2, DENIED)  # the audit still evaluates the rest
    assert set(partial.at_risk) == {"patient", "web", "bare"}
    assert "statefulsets.apps can't be read: 403 Forbidden" in partial.said
    assert "- apiGroups: [apps]\n  resources: [statefulsets]\n  verbs: [list]" in partial.said


def test_reports_are_written_and_pruned_but_never_taken_from_other_managers(things: Cluster, auditor: Path) -> None:
    kubectl = things.kubectl
    absent = audit(auditor, "--write-reports")
    assert (absent.code, absent.report) == (2, None)
    assert (
        "serves neither PolicyReports of wgpolicyk8s.io/v1alpha2 nor Reports of openreports.io/v1alpha1" in absent.said
    )
    crds = f"--filename={policy_report_crds()}"
    kubectl("apply", "--server-side", crds)
    try:
        wait_for_crds(kubectl)
        labels = {"app.kubernetes.io/managed-by": "spotgate", "app.kubernetes.io/component": "audit"}
        other = {"apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport", "summary": {"fail": 7}}
        metadata = {"name": "spotgate-audit", "labels": labels}
        others = [{**other, "metadata": {**metadata, "namespace": namespace}} for namespace in ("kube-public", "shop")]
        kubectl.apply(*others)
        taken = audit(auditor, "--write-reports")
        assert taken.code == 2
        assert "409 Conflict" in taken.said
        assert "another field manager has written the report spotgate-audit" in taken.said
        kubectl("delete", "policyreport", "spotgate-audit", "--namespace=shop")

        assert "reports: 3 applied, 0 deleted" in audit(auditor, "--write-reports").said
        written = kubectl.get("policyreports,clusterpolicyreports", "--all-namespaces")["items"]
        counts = {report["metadata"].get("namespace"): report["summary"]["fail"] for report in written}
        assert counts == {"default": 3, "shop": 1, None: 1, "kube-public": 7}

        kubectl("delete", "pod", "probe", "--namespace=shop", "--grace-period=0", "--force")
        assert "reports: 2 applied, 1 deleted" in audit(auditor, "--write-reports").said
        left = kubectl.get("policyreports,clusterpolicyreports", "--all-namespaces")["items"]
        versions = {report["metadata"]["uid"]: report["metadata"]["resourceVersion"] for report in written}
        assert {report["metadata"].get("namespace") for report in left} == {"default", None, "kube-public"}
        assert all(versions[report["metadata"]["uid"]] == report["metadata"]["resourceVersion"] for report in left)
    finally:
        kubectl("delete", crds)
