"""Pools that other objects size, and pools in namespaces that their files do not name: as the webhook sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run


def pool(name: str, capacity: str) -> str:
    return (
        "apiVersion: infrastructure.cluster.x-k8s.io/v1beta2\nkind: AWSManagedMachinePool\n"
        f"metadata: {{name: {name}, labels: {{cluster.x-k8s.io/cluster-name: prod}}}}\n"
        f"spec: {{capacityType: {capacity}, instanceType: g5.xlarge, taints: [{{key: spot, effect: no-schedule}}]}}\n"
    )


def machine_pool(name: str, replicas: int = 1) -> str:
    return (
        f"apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachinePool\nmetadata: {{name: {name}}}\nspec:\n"
        f"  replicas: {replicas}\n  clusterName: prod\n"
        f"  template: {{spec: {{infrastructureRef: {{kind: AWSManagedMachinePool, name: {name}}}}}}}\n"
    )


SPOT = pool("gpu-spot", "spot")
GPU, SIZE = pool("gpu", "onDemand"), machine_pool("gpu")
MORE, MORE_SIZE = pool("gpu-2", "onDemand"), machine_pool("gpu-2")
FLEET = (SPOT, GPU, SIZE)


@pytest.fixture(autouse=True)
def fleet(write: Callable[[str, str | bytes], Path]) -> None:
    write("fleet.yaml", "---\n".join(FLEET))
    write("larger.yaml", "---\n".join((*FLEET, MORE, MORE_SIZE)))


def outcomes(run: Run, *arguments: str) -> list[str]:
    done = run("check", "-o", "json", *arguments)
    return [outcome for policy, outcome in done.outcomes if policy == "on-demand-fallback"]


def test_pools_whose_files_name_no_namespace_are_each_others_fallback(run: Run) -> None:
    assert outcomes(run, "fleet.yaml") == []


@pytest.mark.parametrize("given", [GPU, SIZE], ids=["the pool", "what says its size"])
def test_the_last_fallback_is_kept(given: str, run: Run, write: Callable[[str, str | bytes], Path]) -> None:
    write("given.yaml", given)
    assert outcomes(run, "--operation", "DELETE", "--state", "fleet.yaml", "given.yaml") == ["deny"]
    assert outcomes(run, "--operation", "DELETE", "--state", "larger.yaml", "given.yaml") == []


def test_of_several_that_are_deleted_the_last_is_kept(run: Run, write: Callable[[str, str | bytes], Path]) -> None:
    write("given.yaml", f"{SIZE}---\n{MORE_SIZE}")
    assert outcomes(run, "--operation", "DELETE", "--state", "larger.yaml", "given.yaml") == ["deny"]


def test_the_last_fallback_is_not_scaled_to_nothing(run: Run, write: Callable[[str, str | bytes], Path]) -> None:
    write("given.yaml", machine_pool("gpu", 0))
    assert outcomes(run, "--operation", "UPDATE", "--state", "fleet.yaml", "given.yaml") == ["deny"]
    assert outcomes(run, "--operation", "UPDATE", "--state", "larger.yaml", "given.yaml") == []
