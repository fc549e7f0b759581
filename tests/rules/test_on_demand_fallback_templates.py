"""OnDemandFallback where a pool's machines are those of a template: Cluster API's MachineDeployments."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.test_on_demand_fallback_providers import Json, judge, said
from webhook.model.decision import Outcome

DENY, WARN = Outcome.DENY, Outcome.WARN


def deployment(name: str, template: str, kind: str = "AWSMachineTemplate", **spec: Any) -> Json:
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": template}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"clusterName": "blue", "template": {"spec": {"infrastructureRef": reference}}, **spec},
    }


def template(name: str, **machine: Any) -> Json:
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": "AWSMachineTemplate",
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"template": {"spec": {"instanceType": "g6.xlarge", **machine}}},
    }


SPOT, ON_DEMAND = template("spot", spotMarketOptions={}), template("on-demand")
UNCOVERED = (DENY, "GPU spot pool MachineDeployment infra/gpu has no on-demand fallback")
UNKNOWN = (WARN, "can't tell whether MachineDeployment infra/gpu is spot: AWSMachineTemplate spot is not known")


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ([SPOT], [UNCOVERED]),
        ([SPOT, ON_DEMAND], [UNCOVERED]),  # nothing is made of a template alone
        ([SPOT, ON_DEMAND, deployment("base", "on-demand")], []),
        ([SPOT, ON_DEMAND, deployment("base", "on-demand", replicas=0)], [UNCOVERED]),
        ([SPOT, ON_DEMAND, deployment("base", "on-demand", clusterName="green")], [UNCOVERED]),
        ([SPOT, deployment("base", "gone")], [UNCOVERED]),  # its machines are unknown
        ([SPOT, deployment("base", "metal", "Metal3MachineTemplate")], [UNCOVERED]),  # whether it has GPUs is unknown
        ([], [UNKNOWN]),
    ],
)
def test_a_deployment_is_judged_by_the_machines_of_its_template(
    cluster: list[Json], expected: list[tuple[Outcome, str]]
) -> None:
    assert said(judge(deployment("gpu", "spot"), None, cluster)) == expected


def test_a_template_that_nothing_uses_needs_no_fallback() -> None:
    assert judge(SPOT, None, []) == []


def test_a_template_is_judged_for_the_deployments_that_wait_for_it() -> None:
    waiting = [deployment("gpu", "spot"), deployment("more", "spot")]
    found = judge(SPOT, None, waiting)
    assert [(each.outcome, each.field) for each in found] == [(DENY, "spec.template.spec.spotMarketOptions")] * 2
    assert judge(SPOT, None, [*waiting, ON_DEMAND, deployment("base", "on-demand")]) == []
    assert judge(ON_DEMAND, None, [deployment("base", "on-demand")]) == []
    (unknown,) = judge(SPOT, None, None)
    assert unknown.unknown


def test_two_deployments_may_share_a_template() -> None:
    both = [ON_DEMAND, deployment("a", "on-demand"), deployment("b", "on-demand"), SPOT, deployment("gpu", "spot")]
    assert judge(None, deployment("a", "on-demand"), both) == []
    (found,) = judge(None, deployment("a", "on-demand"), [each for each in both if each["metadata"]["name"] != "b"])
    assert found.id == "last-fallback"
    assert [each.id for each in judge(None, ON_DEMAND, both)] == ["last-fallback", "last-fallback"]
    assert judge(None, SPOT, both) == []


def test_infrastructure_that_nobody_describes_is_not_spot() -> None:
    assert judge(deployment("metal", "metal", "Metal3MachineTemplate"), None, []) == []


def test_a_fallback_does_not_become_spot_by_another_template() -> None:
    cluster = [SPOT, ON_DEMAND, deployment("base", "on-demand"), deployment("gpu", "spot")]
    found = judge(deployment("base", "spot"), deployment("base", "on-demand"), cluster)
    assert {each.id for each in found} == {"missing", "last-fallback"}
    assert {each.field for each in found} == {"spec.template.spec.infrastructureRef"}
