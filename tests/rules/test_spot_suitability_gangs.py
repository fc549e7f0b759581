"""SpotSuitability: of Pods that work only together, none is on spot while another is on demand."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.rules.judged import CLUSTER, judged, template
from tests.test_invariants_requests import embedded
from webhook.kube.templates import TEMPLATES_AT_MOST

JSON = dict[str, Any]

QUEUE: Final = {"kueue.x-k8s.io/queue-name": "gpus"}
OWN_SPOT: Final = "own selector"


def part(capacity: str, **metadata: JSON) -> JSON:
    if capacity == OWN_SPOT:
        return template(nodeSelector={"compute.coreweave.com/node-pool": "cpu-spot"}, metadata=metadata)
    labels = {"spotgate.dev/capacity": capacity} if capacity else {}
    return template(metadata={**metadata, "labels": {**labels, **metadata.get("labels", {})}})


def jobset(**jobs: str) -> JSON:
    replicated = [{"name": name, "template": {"spec": {"template": part(each)}}} for name, each in jobs.items()]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j"},
        "spec": {"replicatedJobs": replicated},
    }


def kubeflow(kind: str, replicas: str, spec: JSON | None = None, **roles: str) -> JSON:
    specs = {role: {"template": part(each)} for role, each in roles.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "t"},
        "spec": {replicas: specs, **(spec or {})},
    }


def ray(*groups: str, head: str = "on-demand", labels: JSON | None = None) -> JSON:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "labels": labels or {}},
        "spec": {
            "headGroupSpec": {"template": part(head)},
            "workerGroupSpecs": [{"groupName": f"g{n}", "template": part(each)} for n, each in enumerate(groups)],
        },
    }


def grouped(value: JSON) -> JSON:
    """Return the Ray cluster with its workers in a PodGroup of Kubernetes."""
    for group in value["spec"]["workerGroupSpecs"]:
        group["template"]["spec"]["schedulingGroup"] = {"podGroupName": "workers"}
    return value


def job(capacity: str, **labels: str) -> JSON:
    value = embedded("spec.template", part(capacity, labels=labels))
    return {"apiVersion": "batch/v1", "kind": "Job", **value}


def split(value: JSON) -> list[str]:
    """Return where a gang is said to be split."""
    found = judged(value, "SpotSuitability", view=CLUSTER)
    return [each.field.partition(".metadata")[0] for each in found if each.id == "spot-suitability/gang-split"]


def of_job(number: int) -> str:
    return f"spec.replicatedJobs[{number}].template.spec.template"


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("all on spot", jobset(workers="spot", readers="spot")),
        ("all on spot, in other words", jobset(workers="spot", readers=OWN_SPOT)),
        ("all on demand", jobset(workers="on-demand", readers="")),
        ("a leader on demand", jobset(driver="on-demand", workers="spot", readers="spot")),
        ("a launcher on demand", kubeflow("MPIJob", "mpiReplicaSpecs", Launcher="on-demand", Worker="spot")),
        ("a master on demand", kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master="", Worker="spot")),
        ("parameter servers on demand", kubeflow("TFJob", "tfReplicaSpecs", PS="on-demand", Worker="spot")),
        ("elastic training", kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"elasticPolicy": {"maxRestarts": 3}}, Worker="spot-preferred")),
        ("groups of Ray, which go on without each other", ray("spot", "on-demand", "spot-preferred")),
        ("a head on demand in a queue", ray("spot", "spot", labels=QUEUE)),
        ("workers in a queue that are replaced one by one", ray("spot-preferred", labels=QUEUE)),
        ("a PodGroup of Kubernetes, which may go on without a Pod", grouped(ray("spot-preferred"))),
        ("a Job in a queue", job("spot-preferred", **QUEUE)),
        ("a Job", job("spot-preferred")),
    ],
)  # fmt: skip
def test_a_gang_is_not_split(what: str, value: JSON) -> None:
    assert split(value) == [], what


@pytest.mark.parametrize(
    ("what", "value", "places"),
    [
        ("the first on spot", jobset(workers="spot", readers="on-demand"), [of_job(0)]),
        ("the last on spot", jobset(readers="", workers="spot"), [of_job(1)]),
        ("one in the middle on demand", jobset(a="spot", b="spot", c="on-demand", d=OWN_SPOT), [of_job(0)]),
        ("spot or on-demand", jobset(workers="spot-preferred"), [of_job(0)]),
        ("workers of training", kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master="on-demand", Worker="spot-preferred"), ["spec.pytorchReplicaSpecs.Worker.template"]),
        ("a queue that starts all at once", ray("on-demand", "spot", labels=QUEUE), ["spec.workerGroupSpecs[1].template"]),
        ("a PodGroup of Kubernetes", grouped(ray("on-demand", "spot")), ["spec.workerGroupSpecs[1].template"]),
        ("a PodGroup", job("spot-preferred", **{"scheduling.x-k8s.io/pod-group": "g"}), ["spec.template"]),
    ],
)  # fmt: skip
def test_a_gang_is_split(what: str, value: JSON, places: list[str]) -> None:
    assert split(value) == places, what


def test_the_part_that_is_not_on_spot_is_named() -> None:
    (found,) = [
        each
        for each in judged(jobset(workers="spot", readers="on-demand"), "SpotSuitability", view=CLUSTER)
        if each.id == "spot-suitability/gang-split"
    ]
    assert found.reason == f"this part of the gang is on spot, and {of_job(1)} is not"


def test_a_gang_of_as_many_parts_as_are_judged_is_compared_with_its_first_part() -> None:
    parts = {f"w{number}": "spot" for number in range(TEMPLATES_AT_MOST - 1)}
    assert split(jobset(**parts, last="on-demand")) == [of_job(0)]
