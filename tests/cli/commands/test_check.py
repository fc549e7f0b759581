"""Evaluating by ``check``: requests, state, patches, positions of findings, exit codes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

import jsonpatch
import pytest
import yaml

from tests.cli.conftest import NODE, POD, SPOT_POD
from webhook.base.field_paths import field_path, parse_field_path
from webhook.inputs import policies

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Write


TODAY = date(2026, 2, 20)
ENDS = "the exemption ends on {last} (migration); extend it, or correct the objects\n"
ENDED = "the exemption ended on {last} (migration); remove it, or extend it\n"


@pytest.mark.parametrize(("days", "says"), [(0, ENDS), (14, ENDS), (15, ""), (-1, ENDED)])
def test_an_expired_or_soon_expiring_exemption_is_a_warning(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch, days: int, says: str
) -> None:
    monkeypatch.setattr(policies, "utc_now", lambda: datetime.combine(TODAY, time.max, tzinfo=UTC))
    last = TODAY + timedelta(days=days)
    policy = f"""\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {{name: labels}}
spec:
  domains: [example.org]
  exempt:
    - users: [jane]
      reason: migration
      expires: {last}
---
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {{name: team-a}}
spec: {{policies: ["*"], namespaces: [team-a], reason: migration, expires: {last}}}
"""
    done = run("check", write("pod.yaml", POD), "--policies", write("policy.yaml", policy))
    places = ("9:7: spec.exempt[0].expires", "14:66: spec.expires") if says else ()
    warnings = [f"policy.yaml:{place}: warning: {says.format(last=last)}" for place in places]
    assert (done.code, done.err) == (0, "".join(warnings))


TAINTED_POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: gpu-spot
spec:
  computeClass: spot
  instanceType: gd-8xh100ib-i128
  targetNodes: 2
  nodeTaints: [{key: spot, value: "true", effect: NoSchedule}]
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata:
      labels: {app: web}
    spec:
      nodeSelector: {compute.coreweave.com/node-pool: gpu-spot}
      tolerations:
      containers: [{name: main, image: busybox}]
"""


@pytest.mark.parametrize(
    "text",
    [
        SPOT_POD,
        SPOT_POD.replace("      image: busybox", "      image: busybox\n      lifecycle:"),
        SPOT_POD.replace("      image: busybox", "      image: busybox\n      lifecycle: {preStop: null}"),
        SPOT_POD.replace("  containers", "  tolerations: null\n  terminationGracePeriodSeconds: null\n  containers"),
        DEPLOYMENT,
        "apiVersion: v1\nkind: List\nitems:\n- " + "\n  ".join(DEPLOYMENT.splitlines()) + "\n",
        json.dumps(yaml.safe_load(SPOT_POD)),
    ],
    ids=["unchanged", "null lifecycle", "null preStop", "nulls", "template", "in a list", "JSON"],
)
def test_patch_applies_to_the_document_as_written_and_is_complete(run: Run, write: Write, text: str) -> None:
    policies = """\
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: placement}
---
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
"""
    arguments = ("--policies", write("policies.yaml", policies), "--state", write("pool.yaml", TAINTED_POOL))
    document = write("document.yaml", text)
    (patch,) = run("check", "-o", "json", document, *arguments).json["patches"]
    patched = jsonpatch.apply_patch(yaml.safe_load(text), patch["patch"])
    paths = {operation["path"] for operation in patch["patch"]}
    assert any("/tolerations" in path for path in paths)
    assert any("/lifecycle" in path for path in paths)
    report = run("check", "-o", "json", write("patched.yaml", yaml.safe_dump(patched)), *arguments).json
    assert (report["patches"], report["results"]) == ([], [])


def test_patch_follows_the_kubernetes_version_and_the_oldest_kubelet_in_state(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
"""
    pod = write("pod.yaml", SPOT_POD.replace("resources: {limits: {nvidia.com/gpu: 8}}", "ports: []"))
    arguments = ("check", pod, "-o", "json", "--policies", write("policy.yaml", policy), "--state")
    pool = write("pool.yaml", TAINTED_POOL)

    def handlers(*more: str | Path) -> list[str]:
        (patch,) = run(*arguments, pool, *more).json["patches"]
        return [name for op in patch["patch"] if "lifecycle" in op["path"] for name in op["value"]["preStop"]]

    assert handlers() == ["sleep"]
    assert handlers("--kubernetes-version", "1.28") == ["exec"]
    assert handlers("--state", write("node.yaml", NODE)) == ["exec"]


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("", ()),
        ("spec", ("spec",)),
        ('metadata.labels["a.b/c"]', ("metadata", "labels", "a.b/c")),
        ("spec.tolerations[10].key", ("spec", "tolerations", 10, "key")),
        ('spec.replicas["Worker"].template', ("spec", "replicas", "Worker", "template")),
        ('spec.nodeLabels["a\\"b"]', ("spec", "nodeLabels", 'a"b')),
        ('spec.nodeLabels["a\\qb"].x', ("spec", "nodeLabels", "a\\qb", "x")),
        ("spec.containers[*].name", ("spec", "containers")),
        ("spec.requirements[?key=='x'].values", ("spec", "requirements")),
    ],
)
def test_field_of_a_finding_is_the_longest_path_that_exists(field: str, path: tuple[str | int, ...]) -> None:
    assert parse_field_path(field) == path


@pytest.mark.parametrize("path", [("a", 0, "b/c", 12), ("x.y",), ("q\"'\\", "z"), ("", "ü"), ("$a_b",)])
def test_path_round_trips_through_a_field(path: tuple[str | int, ...]) -> None:
    assert parse_field_path(field_path(path)) == path
