"""A real API server takes the PolicyReports that ``check`` writes, and keeps every field of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from tests.controlplane.populate import wait_for_crds
from tests.golden.formats import expected_file
from tests.policy_reports import policy_report_crds

if TYPE_CHECKING:
    from tests.controlplane.cluster import Cluster


def test_the_reports_can_be_applied_as_they_are(bare_cluster: Cluster) -> None:
    kubectl, reports = bare_cluster.kubectl, expected_file("policyreport")
    crds = f"--filename={policy_report_crds()}"
    kubectl("apply", "--server-side", crds)
    try:
        wait_for_crds(kubectl)
        for namespace in ("research", "shop"):
            kubectl("create", "namespace", namespace)
        kubectl("apply", "--validate=strict", f"--filename={reports}")
        for wanted in yaml.safe_load_all(reports.read_text()):
            metadata = wanted.pop("metadata")
            there = kubectl.get(
                f"{wanted['kind']}.wgpolicyk8s.io", metadata["name"], f"--namespace={metadata.get('namespace', '')}"
            )
            assert wanted.items() <= there.items()
    finally:
        kubectl("delete", crds)
        kubectl("delete", "namespace", "research", "shop", "--ignore-not-found", "--wait=false")
