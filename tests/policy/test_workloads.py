"""Workload kinds that teams describe, in addition to the shipped ones."""

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
    return [f"{problem.line}: {problem.field}: {problem.text}" for problem in caught.value.problems]


def paths(workload: Workload) -> list[str]:
    return [path.text for path in workload.paths]


@pytest.mark.parametrize(
    ("own", "more"),
    [
        ("spec.headGroupSpecs.template", ["spec.headGroupSpecs.template"]),
        (f"{HEAD}, spec.sidecar", ["spec.sidecar"]),
        (HEAD, []),
    ],
)
def test_a_teams_templates_are_added_to_the_shipped_ones(tmp_path: Path, own: str, more: list[str]) -> None:
    labels = ", labels: [{path: spec.headGroupSpec.labels}, {path: spec.labels}]"
    ray = workloads(tmp_path, OWN % "own", RAY % (own, labels))["ray.io", "rayclusters"]
    assert paths(ray) == [HEAD, WORKERS, *more]
    carried = ["spec.headGroupSpec.labels", "spec.workerGroupSpecs[*].labels", "spec.labels"]
    assert [location.path.text for location in ray.labels] == carried


def test_several_documents_are_merged_and_the_last_pod_owner_wins(tmp_path: Path) -> None:
    item = "    - {group: ml.acme.example, kind: Training, resource: trainings, templates: [%s]%s}\n"
    owner = ", podOwner: {apiVersion: batch/v1, kind: Job}, restartPolicy: Never"
    loaded = workloads(
        tmp_path, OWN % "a", item % ("spec.a", ""), item % ("spec.b", owner), OWN % "b", item % ("spec.c", "")
    )
    training = loaded["ml.acme.example", "trainings"]
    assert (paths(training), training.pod_owner, training.restart_policy) == (
        ["spec.a", "spec.b", "spec.c"],
        OwnerReference(kind="Job", apiVersion="batch/v1"),
        "Never",
    )


def test_a_document_with_the_shipped_name_replaces_the_shipped_one(tmp_path: Path) -> None:
    loaded = workloads(tmp_path, OWN % "workloads", RAY % ("spec.own", ""))
    assert {key: paths(workload) for key, workload in loaded.items()} == {("ray.io", "rayclusters"): ["spec.own"]}


def test_a_template_that_matches_two_paths_is_returned_once(tmp_path: Path) -> None:
    own = "    - {group: kubeflow.org, kind: MPIJob, resource: mpijobs, templates: [spec.mpiReplicaSpecs.Worker.template]}\n"
    job = workloads(tmp_path, OWN % "own", own)["kubeflow.org", "mpijobs"]
    value: dict[str, Any] = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {}}, "Launcher": {"template": {}}}}}
    assert [template.path[2] for template in job.templates(value)] == ["Worker", "Launcher"]


@pytest.mark.parametrize(
    ("item", "mistake"),
    [
        ("group: ml.acme.example/v1, kind: Training, resource: trainings",
            "group: expected '' for the core group, or a name such as apps; got 'ml.acme.example/v1'"),
        ("group: ml.acme.example, kind: tuning, resource: tunings",
            "kind: expected a singular in CamelCase, such as Deployment; got 'tuning'"),
    ],
)  # fmt: skip
def test_a_kind_that_cannot_exist_is_a_mistake(tmp_path: Path, item: str, mistake: str) -> None:
    reported = mistakes(tmp_path, OWN % "own", f"    - {{{item}, templates: [spec.template]}}\n")
    assert reported == [f"11: spec.workloads[0].{mistake}"]


# The shipped templates

BUILT_IN: Final = {"", "apps", "batch"}
SHIPPED_WORKLOADS: Final = {
    f"{workload.kind}.{workload.group}": workload
    for workload in load_bundle([SHIPPED]).index.workloads.values()
    if workload.group not in BUILT_IN
}
FIELDS: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("workload_fields.yaml").read_text())


def named(workload: Workload) -> Iterator[str]:
    """Yield every field that the documents name, except the object's metadata."""
    for path in workload.paths:
        yield path.text
        if (layout := path.layout) is None:
            continue
        below = [layout.spec, *((*layout.spec, *container) for container in layout.containers)]
        below += [(*layout.spec, name) for name in layout.written or ()]
        below += [member for member in (layout.metadata, layout.gpus) if member]
        yield from (".".join(map(str, (path.text, *member))) for member in below)
        for source in layout.inherits:
            yield from (".".join(map(str, member)) for member in (source.metadata, source.spec) if member)
    yield from (location.path.text for location in workload.labels)


@pytest.mark.parametrize("kind", sorted(SHIPPED_WORKLOADS))
def test_every_field_in_the_documents_is_in_the_crd(kind: str) -> None:
    workload, crd = SHIPPED_WORKLOADS[kind], FIELDS[kind]
    assert (workload.resource, workload.namespaced) == (crd["resource"], crd["scope"] == "Namespaced")
    known = {*crd["fields"], *crd.get("free", ()), "metadata"}
    assert [field for field in named(workload) if field not in known] == []


def test_only_shipped_kinds_are_listed() -> None:
    assert set(FIELDS) == set(SHIPPED_WORKLOADS)
