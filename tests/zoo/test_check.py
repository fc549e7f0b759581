"""What `check` makes of the workloads of the zoo is what the providers' documentation asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.zoo.clusters import CLUSTERS, DEFAULT_GRACE, check, differences, template_of, workloads_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zoo.clusters import JSON

PLACED = ("tolerations", "nodeSelector", "affinity", "terminationGracePeriodSeconds")


@pytest.mark.parametrize("name", CLUSTERS)
def test_workloads_become_what_the_provider_documents_and_nothing_else_of_them_changes(
    name: str, tmp_path: Path
) -> None:
    workloads, found = check(name, tmp_path / "workloads.yaml")
    assert differences(name, workloads, found) == {}
    assert {entry: without_placement(each) for entry, each in workloads.items()} == {
        entry: without_placement(each) for entry, each in workloads_of(name).items()
    }


def without_placement(workload: JSON) -> JSON:
    """Return the workload without what may be injected; a preStop hook only where the grace period is set."""
    spec = template_of(workload)["spec"]
    for container in spec["containers"]:
        if spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE) != DEFAULT_GRACE:
            container.pop("lifecycle", None)
    for field in PLACED:
        spec.pop(field, None)
    return workload
