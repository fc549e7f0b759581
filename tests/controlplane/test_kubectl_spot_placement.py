"""Spot placement, as somebody with kubectl meets it: what is stored, and what kubectl says about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.kubectl import as_list, as_warnings, of_a_bare_pod
from tests.objects import SPOT_NODES, deployment, job, pod, saying

if TYPE_CHECKING:
    from tests.controlplane.kubectl import Kubectl
    from tests.controlplane.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

POOL = "compute.coreweave.com/node-pool"
ANNOTATION = "spotgate.dev/node-pool"
SPOT = {"spotgate.dev/capacity": "spot"}
SPOT_PREFERRED = {"spotgate.dev/capacity": "spot-preferred"}
ON_DEMAND = {"spotgate.dev/capacity": "on-demand"}
TOLERATION = {"key": "example.com/spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}


def placement(stored: dict[str, Any]) -> dict[str, Any]:
    """Return what of a stored Pod says where it may run, without what Kubernetes gives every Pod."""
    spec = stored["spec"]
    tolerations = [each for each in spec["tolerations"] if not each["key"].startswith("node.kubernetes.io/")]
    found = {"nodeSelector": spec.get("nodeSelector"), "affinity": spec.get("affinity"), "tolerations": tolerations}
    return {name: value for name, value in found.items() if value}


def on(pool: str, **selector: str) -> dict[str, Any]:
    return {"nodeSelector": {POOL: pool, **selector}, "tolerations": [TOLERATION]}


PREFERRED = {
    "tolerations": [TOLERATION],
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["h100-spot"]}]},
                }
            ]
        }
    },
}

# What is stored


@pytest.mark.parametrize(
    ("thing", "placed"),
    [
        (saying(pod("labelled"), SPOT), on("cpu-spot")),
        (saying(pod("labelled-with-gpus", gpus=8), SPOT), on("h100-spot")),
        (saying(pod("preferring-spot", gpus=8), SPOT_PREFERRED), PREFERRED),
        (saying(pod("naming-a-pool"), {}, {ANNOTATION: "cpu-spot"}), on("cpu-spot")),
        (pod("selecting-spot", nodeSelector=SPOT_NODES), on("cpu-spot", **SPOT_NODES)),
        (saying(pod("tolerating-already", tolerations=[TOLERATION]), SPOT), on("cpu-spot")),
        (
            saying(pod("keeping-its-selector"), SPOT, {"spotgate.dev/keep": "node-selector"}),
            {"tolerations": [TOLERATION]},
        ),
        (saying(pod("on-demand"), ON_DEMAND), {}),
        (pod("saying-nothing"), {}),
        (pod("saying-nothing-with-gpus", gpus=8), {}),
    ],
    ids=lambda value: value.get("metadata", {}).get("name", ""),
)
def test_a_pod_is_stored_with_what_it_needs_to_run_on_spot_and_no_more(
    thing: dict[str, Any], placed: dict[str, Any], alice: Kubectl
) -> None:
    result = alice.run("apply", "--filename=-", "--dry-run=server", "--output=json", documents=json.dumps(thing))
    said = of_a_bare_pod(thing, alice.namespace) if placed else ""
    assert (result.returncode, result.stderr) == (0, as_warnings(said))
    assert placement(json.loads(result.stdout)) == placed


@pytest.mark.parametrize("command", ["create", "apply", "apply --server-side"])
def test_it_is_stored_however_it_is_created(command: str, team: Kubectl) -> None:
    team(*command.split(), "--filename=-", documents=as_list(saying(pod("batch"), SPOT)))
    assert placement(team.get("pod", "batch")) == on("cpu-spot")


def test_a_dry_run_shows_it_and_stores_nothing(team: Kubectl) -> None:
    shown = team.apply(saying(pod("batch"), SPOT), arguments=("--dry-run=server",))
    assert shown == "pod/batch created (server dry run)\n"
    assert team("get", "pods", "--output=name") == ""


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_applying_the_same_again_changes_nothing(how: tuple[str, ...], team: Kubectl) -> None:
    things = (saying(pod("batch"), SPOT), saying(deployment("batch", 0), SPOT))
    team.apply(*things, arguments=how)
    team("wait", "--for=condition=Ready", "pod/batch", "--timeout=60s")
    before = [team.get("pod", "batch")["metadata"]["resourceVersion"], team.get("deployment", "batch")["spec"]]
    result = team.run("apply", *how, "--filename=-", documents=as_list(*things))
    assert (result.returncode, result.stderr) == (0, "")
    after = [team.get("pod", "batch")["metadata"]["resourceVersion"], team.get("deployment", "batch")["spec"]]
    assert after == before


def test_a_workloads_template_stays_as_it_was_written(team: Kubectl) -> None:
    for thing in (saying(deployment("batch", 0), SPOT), saying(job("batch"), SPOT)):
        result = team.run("apply", "--filename=-", documents=as_list(thing))
        assert (result.returncode, result.stderr) == (0, "")
    stored = team.get("deployment", "batch")["spec"]["template"]["spec"]
    assert not {"nodeSelector", "affinity", "tolerations"} & stored.keys()


def test_a_namespace_speaks_for_its_pods_until_one_speaks_for_itself(team: Kubectl, webhook: Webhook) -> None:
    team("label", "namespace", team.namespace, "spotgate.dev/capacity=spot")
    namespace = f"--namespace={team.namespace}"
    webhook.wait(lambda: placement(webhook.try_out(pod("probe"), namespace)), "the namespace's label is known")
    assert placement(webhook.try_out(pod("silent"), namespace)) == on("cpu-spot")
    assert placement(webhook.try_out(saying(pod("steady"), ON_DEMAND), namespace)) == {}


# Changing


def test_a_running_pod_is_left_where_it_is_and_can_be_changed(team: Kubectl) -> None:
    team.apply(saying(pod("spot"), SPOT), pod("steady"))
    for command in (
        "label pod/steady spotgate.dev/capacity=spot",
        "annotate pod/spot note=x",
        "set image pod/spot main=registry.example.com/app:2",
        'patch pod/spot --patch={"metadata":{"labels":{"spotgate.dev/capacity":"on-demand"}}}',
    ):
        result = team.run(*command.split())
        assert (result.returncode, result.stderr) == (0, ""), command
    assert placement(team.get("pod", "steady")) == {}
    assert placement(team.get("pod", "spot")) == on("cpu-spot")
    assert team.get("pod", "spot")["spec"]["containers"][0]["image"] == "registry.example.com/app:2"
    assert team("delete", "pods", "--all") == (
        f'pod "spot" deleted from {team.namespace} namespace\npod "steady" deleted from {team.namespace} namespace\n'
    )


# Warnings

UNKNOWN_VALUE = """\
[spot-placement] the label spotgate.dev/capacity has the unknown value `Spot`, did you mean `spot`? (at
    {at}metadata.labels["spotgate.dev/capacity"]) [spot-placement/unknown-capacity]
  It has no effect: the Pod is not placed on spot by it. There are: spot, spot-preferred, on-demand.
  Fix: write `spotgate.dev/capacity: spot`, or one of the others
"""

NO_SUCH_POOL = """\
[spot-placement] there is no node pool `cpu-sopt`, did you mean `cpu-spot`? (at
    {at}metadata.annotations["spotgate.dev/node-pool"]) [spot-placement/no-such-spot-pool]
  The annotation names the spot pool that a Pod is to run on. Spot pools that take Pods: cpu-spot, h100-spot. Nothing
    was changed about where it may run.
  Fix: name one of these pools, or remove the annotation
"""

CONTRADICTION = """\
[spot-placement] the Pod targets spot, and its own nodeSelector or affinity excludes every spot pool that could take it
    (at {at}spec.nodeSelector["compute.coreweave.com/node-pool"]) [spot-placement/own-selector-excludes]
  It targets spot by label spotgate.dev/capacity: spot, and demands `compute.coreweave.com/node-pool: h100`. It admits
    on-demand capacity instead: NodePool h100. The others do not take it either: NodePool h100-spot: it has GPUs, and
    the Pod requests none. Nothing was changed about where it may run.
  Fix: remove the requirement, or label {labelled} `spotgate.dev/capacity: on-demand`
"""


@pytest.mark.parametrize(
    ("labels", "annotations", "selector", "text"),
    [
        ({"spotgate.dev/capacity": "Spot"}, {}, {}, UNKNOWN_VALUE),
        ({}, {ANNOTATION: "cpu-sopt"}, {}, NO_SUCH_POOL),
        (SPOT, {}, {POOL: "h100"}, CONTRADICTION),
    ],
    ids=["unknown value", "no such pool", "contradiction"],
)
def test_what_can_not_be_placed_is_warned_about_at_the_workload(
    labels: dict[str, str], annotations: dict[str, str], selector: dict[str, str], text: str, alice: Kubectl
) -> None:
    for thing, warning in (
        (pod("batch", nodeSelector=selector), text.format(at="", labelled="the Pod")),
        (
            deployment("batch", 0, nodeSelector=selector),
            text.format(at="spec.template.", labelled="the pod template"),
        ),
    ):
        document = as_list(saying(thing, labels, annotations))
        for how in ("apply", "apply --server-side", "create"):
            result = alice.run(*how.split(), "--dry-run=server", "--filename=-", documents=document)
            assert (result.returncode, result.stderr) == (0, as_warnings(warning)), how


def test_what_can_not_be_placed_is_stored_all_the_same_and_warned_about_when_it_changes(team: Kubectl) -> None:
    misspelt = saying(deployment("batch", 0), {}, {ANNOTATION: "cpu-sopt"})
    created = team.run("apply", "--filename=-", documents=as_list(misspelt))
    assert (created.stdout, created.stderr) == (
        "deployment.apps/batch created\n",
        as_warnings(NO_SUCH_POOL.format(at="spec.template.")),
    )
    for command, warns in (
        ("annotate deployment/batch note=x", False),
        ("scale deployment/batch --replicas=1", False),
        ("set image deployment/batch main=registry.example.com/app:2", True),
        ("delete deployment/batch", False),
    ):
        result = team.run(*command.split())
        assert (result.returncode, result.stderr) == (0, created.stderr if warns else ""), command
