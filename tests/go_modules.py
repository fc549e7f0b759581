"""Files of Go modules, downloaded and verified by Go: schemas that no other package contains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.programs import without
from webhook.rehearse.controlplane.binaries import BinariesError

TIMEOUT_SECONDS = 100.0


def go_module(name: str, version: str) -> Path:
    """Download a module once, and return its folder. If that fails, skip the test locally and fail it in CI."""
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))
    if go is None:
        raise without(BinariesError(f"no Go, which downloads {name}"))
    done = subprocess.run(
        [str(go), "mod", "download", "-json", f"{name}@{version}"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        raise without(BinariesError(f"Go could not download {name}@{version}: {done.stdout}{done.stderr}"))
    return Path(json.loads(done.stdout)["Dir"])


def policy_report_crds() -> Path:
    """Return a folder with Kyverno's CRDs of PolicyReport and ClusterPolicyReport, wgpolicyk8s.io/v1alpha2."""
    version = "v1.12.0"  # newer minor versions lack them
    return go_module("github.com/kyverno/kyverno", version) / "config" / "crds" / "policyreport"
