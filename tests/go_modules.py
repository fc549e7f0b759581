"""Files of Go modules, by Go's own proxy and checksums: schemas that are published nowhere else as a package."""

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
    """Return the folder of a module; downloaded, once, where Go has not got it. Without that the test is skipped, in CI fails."""
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
    """Return a folder with the CRDs of PolicyReport and ClusterPolicyReport, wgpolicyk8s.io/v1alpha2, as Kyverno installs them."""
    version = "v1.12.0"  # the last minor versions are without them
    return go_module("github.com/kyverno/kyverno", version) / "config" / "crds" / "policyreport"
