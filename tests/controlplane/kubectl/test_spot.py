"""Pods on spot through kubectl: the stored objects, and the effect of changes in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import deployment, labeled, pod
from tests.controlplane.harness.kubectl import as_list

if TYPE_CHECKING:
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

SPOT = {"spotgate.dev/capacity": "spot"}

NO_BUDGET = "[spot-suitability] no PodDisruptionBudget covers the Pods"


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_a_repeated_apply_changes_nothing(how: tuple[str, ...], team: Kubectl) -> None:
    things = (labeled(pod("batch"), SPOT), labeled(deployment("batch", 0), SPOT))
    team.apply(*things, arguments=how)
    team("wait", "--for=condition=Ready", "pod/batch", "--timeout=60s")
    before = [team.get("pod", "batch")["metadata"]["resourceVersion"], team.get("deployment", "batch")["spec"]]
    result = team.run("apply", *how, "--filename=-", documents=as_list(*things))
    assert (result.returncode, result.stderr) == (0, "")
    after = [team.get("pod", "batch")["metadata"]["resourceVersion"], team.get("deployment", "batch")["spec"]]
    assert after == before


def test_a_namespace_label_applies_to_pods_without_their_own_label(team: Kubectl, webhook: Webhook) -> None:
    def pool(thing: dict[str, Any]) -> Any:
        return webhook.try_out(thing, team.namespace)["spec"].get("nodeSelector")

    team("label", "namespace", team.namespace, "spotgate.dev/capacity=spot")
    webhook.wait(lambda: pool(pod("probe")), "the namespace's label is known")
    assert pool(pod("silent")) == {"compute.coreweave.com/node-pool": "cpu-spot"}
    assert pool(labeled(pod("steady"), {"spotgate.dev/capacity": "on-demand"})) is None


def service(replicas: int) -> dict[str, Any]:
    web = labeled(deployment("web", replicas), SPOT)
    serving = {"ports": [{"containerPort": 8080}], "readinessProbe": {"tcpSocket": {"port": 8080}}}
    web["spec"]["template"]["spec"]["containers"][0] |= serving
    return web


def budget(**bound: int | str) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "web"}}, **bound}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}


def test_a_service_on_spot_gets_warnings_until_it_has_a_budget(team: Kubectl, webhook: Webhook) -> None:
    def said() -> str:
        asked = team.run("create", "--dry-run=server", "--filename=-", documents=as_list(service(3)))
        assert asked.returncode == 0
        return asked.stderr

    assert said().startswith(f"Warning: {NO_BUDGET}")
    team.apply(budget(maxUnavailable=0))
    webhook.wait(lambda: "PodDisruptionBudget web blocks every eviction" in said(), "the budget is known")
    team.apply(budget(maxUnavailable=1))
    webhook.wait(lambda: not said(), "the budget's new bound is known")
    team("delete", "poddisruptionbudget", "web")
    webhook.wait(lambda: NO_BUDGET in said(), "the budget is gone")


def test_warnings_are_not_repeated_for_its_replicasets_and_pods(team: Kubectl, webhook: Webhook) -> None:
    count = webhook.count("spotgate_findings_total", policy="spot-suitability")
    team.apply(service(3))
    team("wait", "--for=create", "pods", "--selector=app=web", "--timeout=60s")
    assert webhook.count("spotgate_findings_total", policy="spot-suitability") == count + 1
