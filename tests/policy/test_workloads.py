"""Kinds of workload that teams describe themselves, beside those that ship."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.kube.pod import OwnerReference
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.templates import Workload

POLICY: Final = (
    "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: labels}\nspec: {domains: [acme.example]}\n"
)
OWN: Final = "---\napiVersion: spotgate.dev/v1\nkind: WorkloadTemplates\nmetadata: {name: %s}\nspec:\n  workloads:\n"
RAY: Final = "    - {group: ray.io, kind: RayCluster, resource: rayclusters, templates: [%s]%s}\n"
HEAD: Final = "spec.headGroupSpec.template"
WORKERS: Final = "spec.workerGroupSpecs[*].template"


def workloads(folder: Path, *documents: str) -> dict[tuple[str, str], Workload]:
    (folder / "policy.yaml").write_text(POLICY + "".join(documents))
    return dict(load_bundle([folder]).index.workloads)


def mistakes(folder: Path, *documents: str) -> list[str]:
    with pytest.raises(PolicyErrors) as caught:
        workloads(folder, *documents)
    return [f"{each.line}: {each.field}: {each.text}" for each in caught.value.problems]


def paths(workload: Workload) -> list[str]:
    return [each.text for each in workload.paths]


@pytest.mark.parametrize(
    ("own", "more"),
    [
        ("spec.headGroupSpecs.template", ["spec.headGroupSpecs.template"]),
        (f"{HEAD}, spec.sidecar", ["spec.sidecar"]),
        (HEAD, []),
    ],
)
def test_the_templates_of_a_team_are_looked_at_beside_those_that_ship(
    tmp_path: Path, own: str, more: list[str]
) -> None:
    labels = ", labels: [{path: spec.headGroupSpec.labels}, {path: spec.labels}]"
    ray = workloads(tmp_path, OWN % "own", RAY % (own, labels))["ray.io", "rayclusters"]
    assert paths(ray) == [HEAD, WORKERS, *more]
    carried = ["spec.headGroupSpec.labels", "spec.workerGroupSpecs[*].labels", "spec.labels"]
    assert [each.path.text for each in ray.labels] == carried


def test_several_documents_add_up_and_the_last_owner_of_pods_holds(tmp_path: Path) -> None:
    item = "    - {group: ml.acme.example, kind: Training, resource: trainings, templates: [%s]%s}\n"
    owner = ", podOwner: {apiVersion: batch/v1, kind: Job}"
    found = workloads(
        tmp_path, OWN % "a", item % ("spec.a", ""), item % ("spec.b", owner), OWN % "b", item % ("spec.c", "")
    )
    training = found["ml.acme.example", "trainings"]
    assert (paths(training), training.pod_owner) == (
        ["spec.a", "spec.b", "spec.c"],
        OwnerReference(kind="Job", apiVersion="batch/v1"),
    )


def test_a_document_of_the_same_name_replaces_those_that_ship(tmp_path: Path) -> None:
    found = workloads(tmp_path, OWN % "workloads", RAY % ("spec.own", ""))
    assert {key: paths(each) for key, each in found.items()} == {("ray.io", "rayclusters"): ["spec.own"]}


def test_a_template_that_two_paths_lead_to_is_found_once(tmp_path: Path) -> None:
    own = "    - {group: kubeflow.org, kind: MPIJob, resource: mpijobs, templates: [spec.mpiReplicaSpecs.Worker.template]}\n"
    job = workloads(tmp_path, OWN % "own", own)["kubeflow.org", "mpijobs"]
    value: dict[str, Any] = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {}}, "Launcher": {"template": {}}}}}
    assert [found.path[2] for found in job.templates(value)] == ["Worker", "Launcher"]


@pytest.mark.parametrize(
    ("item", "mistake"),
    [
        ("group: ml.acme.example/v1, kind: Training, resource: trainings",
            "group: expected '' for the core group, or a name as apps; got 'ml.acme.example/v1'"),
        ("group: ml.acme.example, kind: tuning, resource: tunings",
            "kind: expected a singular with its capitals, as Deployment; got 'tuning'"),
    ],
)  # fmt: skip
def test_a_kind_that_nothing_can_be_is_a_mistake(tmp_path: Path, item: str, mistake: str) -> None:
    said = mistakes(tmp_path, OWN % "own", f"    - {{{item}, templates: [spec.template]}}\n")
    assert said == [f"11: spec.workloads[0].{mistake}"]


# The shipped templates

BUILT_IN: Final = {"", "apps", "batch"}
SHIPPED_WORKLOADS: Final = {
    f"{each.kind}.{each.group}": each
    for each in load_bundle([SHIPPED]).index.workloads.values()
    if each.group not in BUILT_IN
}
FIELDS: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("workload_fields.yaml").read_text())


def named(workload: Workload) -> Iterator[str]:
    """Every field that the documents name, but the object's own metadata."""
    for path in workload.paths:
        yield path.text
        if (layout := path.layout) is None:
            continue
        below = [layout.spec, *((*layout.spec, *each) for each in layout.containers)]
        below += [(*layout.spec, each) for each in layout.written or ()]
        below += [each for each in (layout.metadata, layout.gpus) if each]
        yield from (".".join(map(str, (path.text, *each))) for each in below)
        for source in layout.inherits:
            yield from (".".join(map(str, each)) for each in (source.metadata, source.spec) if each)
    yield from (each.path.text for each in workload.labels)


@pytest.mark.parametrize("kind", sorted(SHIPPED_WORKLOADS))
def test_every_field_that_the_documents_name_is_in_the_crd(kind: str) -> None:
    workload, crd = SHIPPED_WORKLOADS[kind], FIELDS[kind]
    assert (workload.resource, workload.namespaced) == (crd["resource"], crd["scope"] == "Namespaced")
    known = {*crd["fields"], *crd.get("free", ()), "metadata"}
    assert [each for each in named(workload) if each not in known] == []


def test_no_kind_is_listed_that_is_not_shipped() -> None:
    assert set(FIELDS) == set(SHIPPED_WORKLOADS)
