"""Spot placement, as somebody with kubectl meets it: what is stored, and what kubectl says about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.kubectl import as_list, as_warnings, of_a_bare_pod
from tests.objects import deployment, job, pod, saying

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


def on(pool: str) -> dict[str, Any]:
    return {"nodeSelector": {POOL: pool}, "tolerations": [TOLERATION]}


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
        (saying(pod("tolerating-already", tolerations=[TOLERATION]), SPOT), on("cpu-spot")),
        (pod("saying-nothing"), {}),
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

NO_SUCH_POOL = """\
[spot-placement] there is no node pool `cpu-sopt`, did you mean `cpu-spot`? (at
    {at}metadata.annotations["spotgate.dev/node-pool"]) [spot-placement/no-such-spot-pool]
  The annotation names the spot pool that a Pod is to run on. Spot pools that take Pods: cpu-spot, h100-spot. Nothing
    was changed about where it may run.
  Fix: name one of these pools, or remove the annotation
"""


@pytest.mark.parametrize("how", ["apply", "apply --server-side", "create"])
def test_what_can_not_be_placed_is_warned_about_however_it_is_created(how: str, alice: Kubectl) -> None:
    for thing, at in ((pod("batch"), ""), (deployment("batch", 0), "spec.template.")):
        document = as_list(saying(thing, {}, {ANNOTATION: "cpu-sopt"}))
        result = alice.run(*how.split(), "--dry-run=server", "--filename=-", documents=document)
        assert (result.returncode, result.stderr) == (0, as_warnings(NO_SUCH_POOL.format(at=at)))


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
