"""Graceful termination, as somebody with kubectl meets it: what is stored, and what kubectl says about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.kubectl import as_list, as_warnings, of_a_bare_pod
from tests.objects import deployment, job, pod, saying

if TYPE_CHECKING:
    from tests.controlplane.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("webhook")

SPOT = {"spotgate.dev/capacity": "spot"}
CLASS = "spotgate.dev/workload-class"
KEEP = "spotgate.dev/keep"
SLEEP = {"preStop": {"sleep": {"seconds": 5}}}
OWN_HOOK = {"preStop": {"exec": {"command": ["/bin/drain"]}}}


def timing(stored: dict[str, Any]) -> tuple[int, list[Any]]:
    """Return the grace period of a stored Pod, and the lifecycle of each container."""
    spec = stored["spec"]
    return spec["terminationGracePeriodSeconds"], [each.get("lifecycle") for each in spec["containers"]]


def with_containers(thing: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the Pod with a second container, and these fields on its first."""
    first = thing["spec"]["containers"][0] | fields
    thing["spec"]["containers"] = [first, {"name": "second", "image": "registry.example.com/second:1"}]
    return thing


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (saying(pod("untuned"), SPOT), (60, [SLEEP])),
        (saying(pod("checkpointing"), SPOT | {CLASS: "checkpointing"}), (270, [None])),
        (saying(pod("keeping"), SPOT, {KEEP: "grace-period,pre-stop"}), (30, [None])),
        (saying(with_containers(pod("two"), lifecycle=OWN_HOOK), SPOT), (60, [OWN_HOOK, SLEEP])),
        (pod("not-on-spot"), (30, [None])),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else "",
)
def test_a_pod_is_stored_with_the_time_it_needs_to_stop(
    thing: dict[str, Any], expected: tuple[int, list[Any]], alice: Kubectl
) -> None:
    result = alice.run("apply", "--filename=-", "--dry-run=server", "--output=json", documents=json.dumps(thing))
    on_spot = thing["metadata"].get("labels", {}).get("spotgate.dev/capacity") == "spot"
    said = of_a_bare_pod(thing, alice.namespace) if on_spot else ""
    assert (result.returncode, result.stderr) == (0, as_warnings(said))
    assert timing(json.loads(result.stdout)) == expected


def test_what_owns_a_pod_tells_its_class(team: Kubectl) -> None:
    web = deployment("web", 1)
    web["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    team.apply(*(saying(each, SPOT) for each in (web, deployment("worker", 1), job("train", gpus=8), job("report"))))
    for selector in ("app=web", "app=worker", "job-name=train", "job-name=report"):
        team("wait", "--for=create", "pods", f"--selector={selector}", "--timeout=60s")
    stored = {
        each["metadata"]["labels"].get("app") or each["metadata"]["labels"]["job-name"]: timing(each)
        for each in team.get("pods")["items"]
    }
    assert stored == {"web": (60, [SLEEP]), "worker": (120, [SLEEP]), "train": (270, [None]), "report": (30, [None])}


def test_a_changed_template_is_a_new_pod_with_a_new_grace_period(team: Kubectl) -> None:
    team.apply(saying(deployment("web", 1), SPOT))
    team(
        "patch",
        "deployment/web",
        f'--patch={{"spec":{{"template":{{"metadata":{{"labels":{{"{CLASS}":"batch"}}}}}}}}}}',
    )
    team("rollout", "status", "deployment/web", "--timeout=60s")
    (stored,) = team.get("pods", f"--selector={CLASS}=batch")["items"]
    assert timing(stored) == (30, [None])


# Warnings

OVER_BUDGET = """\
[graceful-termination] a grace period of 600 s is 330 s over what a reclaim leaves (at
    {at}spec.terminationGracePeriodSeconds) [graceful-termination/over-budget]
  On CoreWeave CKS a node is drained 120 s after the notice and removed after 420 s: a Pod has 300 s, less a safety
    margin of 30 s. SIGKILL comes 300 s before your grace period ends: what is not saved by then is lost.
  Fix: set `terminationGracePeriodSeconds: 270` and save within that, or run it on-demand: label {labelled}
    `spotgate.dev/capacity: on-demand`
"""
OVER_BUDGET_IN_A_TEMPLATE = OVER_BUDGET.format(at="spec.template.", labelled="the pod template")


def test_a_grace_period_that_a_reclaim_does_not_leave_is_kept_with_a_warning(team: Kubectl) -> None:
    things = (
        (pod("batch", terminationGracePeriodSeconds=600), OVER_BUDGET.format(at="", labelled="the Pod")),
        (deployment("batch", 0, terminationGracePeriodSeconds=600), OVER_BUDGET_IN_A_TEMPLATE),
    )
    for thing, warning in things:
        for how in ("create --dry-run=server", "apply --server-side --dry-run=server", "apply"):
            result = team.run(*how.split(), "--filename=-", documents=as_list(saying(thing, SPOT)))
            said = warning + of_a_bare_pod(thing, team.namespace)
            assert (result.returncode, result.stderr) == (0, as_warnings(said)), how
    assert timing(team.get("pod", "batch")) == (600, [SLEEP])


def test_a_changed_workload_is_judged_again_and_one_left_as_it_is_is_not(team: Kubectl) -> None:
    team.apply(saying(deployment("web", 0), SPOT))
    longer = '--patch={"spec":{"template":{"spec":{"terminationGracePeriodSeconds":600}}}}'
    result = team.run("patch", "deployment/web", longer)
    assert (result.returncode, result.stderr) == (0, as_warnings(OVER_BUDGET_IN_A_TEMPLATE))
    for command in ("scale deployment/web --replicas=1", "annotate deployment/web note=x", "delete deployment/web"):
        result = team.run(*command.split())
        assert (result.returncode, result.stderr) == (0, ""), command
