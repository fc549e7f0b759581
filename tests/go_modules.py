"""Files of Go modules, downloaded and verified by Go: schemas that no other package contains."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.programs import without
from webhook.rehearse.controlplane.binaries import BinariesError, find_go

TIMEOUT_SECONDS = 100.0

KYVERNO = ("github.com/kyverno/kyverno", "v1.12.0")  # newer minor versions lack the CRDs
PROMETHEUS_OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
SARIF = ("github.com/owenrumney/go-sarif/v3", "v3.3.1")


def go_module(name: str, version: str) -> Path:
    """Download a module once, and return its folder. If that fails, skip the test locally and fail it in CI."""
    try:
        return download(name, version)
    except BinariesError as error:
        raise without(error) from None


def download(name: str, version: str) -> Path:
    """Download a module once, and return its folder. Raise BinariesError."""
    done = subprocess.run(
        [find_go(), "mod", "download", "-json", f"{name}@{version}"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        raise BinariesError(f"Go could not download {name}@{version}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


def policy_report_crds() -> Path:
    """Return a folder with Kyverno's CRDs of PolicyReport and ClusterPolicyReport, wgpolicyk8s.io/v1alpha2."""
    return go_module(*KYVERNO) / "config" / "crds" / "policyreport"
