"""Spot suitability and eviction strategies, as somebody with kubectl meets them; budgets as the cluster has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.kubectl import as_list, as_warnings
from tests.objects import deployment, saying

if TYPE_CHECKING:
    from tests.controlplane.kubectl import Kubectl
    from tests.controlplane.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

SPOT = {"spotgate.dev/capacity": "spot"}
BOTH = {"qos.coreweave.cloud/interruptable": "true", "qos.coreweave.com/graceful-interruptible": "true"}

NO_BUDGET = """\
[spot-suitability] no PodDisruptionBudget covers its Pods: nodes that are drained together stop all of them at once (at
    spec.template.metadata.labels) [spot-suitability/disruption-budget-missing]
  A budget makes a drain wait until replacements are ready, for as long as the node is there.
  Fix: apply one:
    apiVersion: policy/v1
    kind: PodDisruptionBudget
    metadata: {{name: web, namespace: {namespace}}}
    spec:
      selector:
        matchLabels: {{app: web}}
      minAvailable: 50%
"""

CONTRADICTION = """\
[eviction-strategy] two eviction strategies contradict each other: which of them a node action follows is not defined
    (at {at}metadata.labels["qos.coreweave.cloud/interruptable"]) [eviction-strategy/contradiction]
  qos.coreweave.cloud/interruptable lets the Pod be deleted at once, qos.coreweave.com/graceful-interruptible makes the
    node wait for its grace period.
  Fix: keep one label, without qos.coreweave.cloud/interruptable or without this one:
{yaml}"""
IN_A_POD = """\
    metadata:
      labels: {qos.coreweave.com/graceful-interruptible: 'true'}
"""
IN_A_TEMPLATE = """\
    spec:
      template:
        metadata:
          labels: {qos.coreweave.com/graceful-interruptible: 'true'}
"""


def service(replicas: int) -> dict[str, Any]:
    web = saying(deployment("web", replicas), SPOT)
    serving = {"ports": [{"containerPort": 8080}], "readinessProbe": {"tcpSocket": {"port": 8080}}}
    web["spec"]["template"]["spec"]["containers"][0] |= serving
    return web


def budget(**bound: int | str) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "web"}}, **bound}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}


def test_a_service_on_spot_is_told_what_it_lacks_until_it_has_it(team: Kubectl, webhook: Webhook) -> None:
    def said() -> str:
        asked = team.run("create", "--dry-run=server", "--filename=-", documents=as_list(service(3)))
        assert asked.returncode == 0
        return asked.stderr

    assert said() == as_warnings(NO_BUDGET.format(namespace=team.namespace))
    team.apply(budget(maxUnavailable=0))
    webhook.wait(lambda: "PodDisruptionBudget web blocks every eviction" in said(), "the budget is known")
    team.apply(budget(maxUnavailable=1))
    webhook.wait(lambda: not said(), "the budget's new bound is known")
    team("delete", "poddisruptionbudget", "web")
    webhook.wait(lambda: "no PodDisruptionBudget covers" in said(), "the budget is gone")


def test_its_replicasets_and_pods_are_not_told_again(team: Kubectl, webhook: Webhook) -> None:
    count = webhook.count("spotgate_findings_total", policy="spot-suitability")
    team.apply(service(3))
    team("wait", "--for=create", "pods", "--selector=app=web", "--timeout=60s")
    assert webhook.count("spotgate_findings_total", policy="spot-suitability") == count + 1


def test_contradicting_strategies_are_named_where_they_are_written(team: Kubectl) -> None:
    team.apply(deployment("batch", 1))
    team("wait", "--for=create", "pods", "--selector=app=batch", "--timeout=60s")
    created = team.run("apply", "--filename=-", documents=as_list(saying(deployment("both", 0), BOTH)))
    in_template = CONTRADICTION.format(at="spec.template.", yaml=IN_A_TEMPLATE)
    assert (created.returncode, created.stderr) == (0, as_warnings(in_template))
    (name,) = (each["metadata"]["name"] for each in team.get("pods", "--selector=app=batch")["items"])
    labelled = team.run("label", "pod", name, *(f"{key}={value}" for key, value in BOTH.items()))
    assert (labelled.returncode, labelled.stderr) == (0, as_warnings(CONTRADICTION.format(at="", yaml=IN_A_POD)))
    again = team.run("label", "pod", name, "note=x")
    assert (again.returncode, again.stderr) == (0, "")
