"""The real scheduler confirms that proposed fixes work, and that a branch makes a workload worse."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

POOL = "compute.coreweave.com/node-pool"
CLUSTER = f"""
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata: {{name: spot-0, labels: {{{POOL}: spot, node.kubernetes.io/instance-type: big}}}}
    status: {{allocatable: {{cpu: "4", memory: 16Gi}}}}
  - apiVersion: v1
    kind: Node
    metadata: {{name: on-demand-0, labels: {{{POOL}: on-demand}}}}
    status: {{allocatable: {{cpu: "2", memory: 16Gi}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: import}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: acme/import, resources: {{requests: {{cpu: "1"}}}}}}]
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {{weight: 100, preference: {{matchExpressions: [{{key: {POOL}, operator: In, values: [spot]}}]}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: %d
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: main, image: acme/web, resources: {{requests: {{cpu: "1"}}}}}}]
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {{weight: 100, preference: {{matchExpressions: [{{key: {POOL}, operator: In, values: [spot]}}]}}}}
"""

pytestmark = pytest.mark.usefixtures("binaries")


def rehearsed(spotgate: Path, folder: Path, *flags: str) -> str:
    done = subprocess.run(
        [str(spotgate), "rehearse", "--lose=type:big", "--runs=1", "cluster.yaml", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_with_the_fixes_a_job_survives_and_no_pod_is_pending(spotgate: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER % 3)
    # The nodes of the new pool have the lost type, and survive.
    said = rehearsed(spotgate, tmp_path, "--with-fixes", "--fix-seconds=0")
    for line in (
        "\n    pending                        1               0\n",
        "Deployment default/web  3 of 3 lost\n    moved                          2               3\n",
        "Job default/import  1 of 1 lost\n    moved                          0               1\n",
        "Fix (not tried): spot: 1 Pod can't be scheduled elsewhere; the requests fit on 1 on-demand node of the same type",
        "Fix (not tried): Job default/import: the Job fails, because lost Pods count as failures;",
        "action: Ignore",
    ):
        assert line in said, said
    assert "worse" not in said


def test_workloads_that_a_branch_makes_worse_are_reported(spotgate: Path, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607

    git("init", "-q", "-b", "main")
    (tmp_path / "cluster.yaml").write_text(CLUSTER % 2)
    git("add", ".")
    git("commit", "-qm", "before")
    (tmp_path / "cluster.yaml").write_text(CLUSTER % 3)
    said = rehearsed(spotgate, tmp_path, "--compare=main")
    assert "Compared with main:\n    worse: Deployment default/web: pending 0 -> 1\n" in said
    assert "better" not in said


def test_an_eviction_at_the_notice_saves_pods_with_a_long_grace_period(spotgate: Path, tmp_path: Path) -> None:
    nodes, _, deployment = (CLUSTER % 1).split("---")
    slow = deployment.replace("    spec:\n", "    spec:\n      terminationGracePeriodSeconds: 350\n")
    (tmp_path / "cluster.yaml").write_text(f"{nodes}---{slow}")
    said = rehearsed(spotgate, tmp_path, "--with-fixes")
    for line in (
        "\n    killed early                   1               0\n",
        "Fix (helps): Deployment default/web: its grace period of 350 s is longer than the 300 s that the reclaim leaves; with spotgate",
        "          spotgate.dev/on-reclaim: evict\n",
    ):
        assert line in said, said
