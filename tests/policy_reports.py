"""The CRDs of PolicyReports, as Kyverno installs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.go_modules import go_module

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "v1.12.0"  # the last minor versions are without them


def policy_report_crds() -> Path:
    """Return a folder with the CRDs of PolicyReport and ClusterPolicyReport, wgpolicyk8s.io/v1alpha2."""
    return go_module("github.com/kyverno/kyverno", VERSION) / "config" / "crds" / "policyreport"
