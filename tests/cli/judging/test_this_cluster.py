"""Which of the clusters that node pools name is this one, and ``shipped`` policies beside own ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import POLICIES

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


WEB = """\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {spotgate.dev/capacity: spot}}
spec: {containers: [{name: main, image: busybox}]}
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
EXEMPTION = """\
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {name: migration}
spec: {policies: [spot-*], namespaces: [old], reason: moving, expires: 2027-01-31}
"""


NONE = "spot-placement/no-spot-pool"


def pool(name: str, cluster: str = "prod", *, spot: bool = True) -> str:
    config = {"machineType": "e2-standard-4", "spot": spot}
    return json.dumps(
        {
            "apiVersion": "container.cnrm.cloud.google.com/v1beta1",
            "kind": "ContainerNodePool",
            "metadata": {"name": name, "namespace": "infra"},
            "spec": {"clusterRef": {"name": cluster}, "location": "us-east1", "nodeConfig": config},
        }
    )


def patch(done: Any) -> str:
    return json.dumps(done.json["patches"])


ONE = (pool("spot"), pool("base", spot=False))
TWO = (*ONE, pool("other", "dev"))


@pytest.mark.parametrize(
    ("state", "flags", "finding"),
    [
        (ONE, [], []),
        (ONE, ["--cluster", "prod"], []),
        (ONE, ["--cluster", "dev"], [NONE]),
        ((*ONE, NODE), [], [NONE]),
        ((*ONE, NODE), ["--cluster", "infra/prod"], []),
        (TWO, [], [NONE]),
        (TWO, ["--cluster", "infra/prod"], []),
        (TWO, ["--cluster", "projects/p/locations/l/clusters/prod"], [NONE]),
    ],
)
def test_pods_are_placed_on_pools_of_this_cluster_alone(
    run: Run, write: Write, state: tuple[str, ...], flags: list[str], finding: list[str]
) -> None:
    done = run(
        "check", "-o", "json", write("web.yaml", WEB), "--state", write("state.yaml", "\n---\n".join(state)), *flags
    )
    assert ("cloud.google.com/gke-spot" in patch(done)) is not bool(finding)
    assert [each["id"] for each in done.json["results"] if each["policy"] == "spot-placement"] == finding


def test_a_finding_names_the_clusters_that_there_are(run: Run, write: Write) -> None:
    done = run("check", "-o", "json", write("web.yaml", WEB), "--state", write("state.yaml", "\n---\n".join(TWO)))
    (found,) = (each for each in done.json["results"] if each["id"] == "spot-placement/no-spot-pool")
    assert found["detail"].startswith("There are spot pools of infra/dev, infra/prod.")
    assert "`--cluster NAME`" in found["fix"]


def test_a_misspelt_cluster_is_named_with_those_that_there_are(run: Run, write: Write) -> None:
    state = write("state.yaml", "\n---\n".join(TWO))
    done = run("check", "-o", "json", write("web.yaml", WEB), "--state", state, "--cluster", "prd")
    (found,) = (each for each in done.json["results"] if each["id"] == NONE)
    assert found["reason"].endswith("all spot pools belong to other clusters")
    assert "There are spot pools of infra/dev, infra/prod." in found["detail"]
    assert "`--cluster NAME`" in found["fix"]


def test_the_project_file_names_the_cluster_and_a_flag_wins(run: Run, write: Write) -> None:
    write("repo/.spotgate.yaml", "cluster: prod\nstate: [pools.yaml]\n")
    write("repo/pools.yaml", "\n---\n".join((*ONE, NODE)))
    write("repo/web.yaml", WEB)
    assert "gke-spot" in patch(run("check", "-o", "json", "repo/web.yaml"))
    assert "gke-spot" not in patch(run("check", "-o", "json", "repo/web.yaml", "--cluster", "dev"))


def test_explain_says_that_the_one_cluster_of_the_files_is_taken_for_this_one(run: Run, write: Write) -> None:
    done = run("explain", write("web.yaml", WEB), "--state", write("state.yaml", "\n---\n".join(ONE)))
    assert "cluster infra/prod is taken for this one" in " ".join(done.out.split())


def test_fallback_is_the_same_whether_the_cluster_is_taken_for_this_one_or_named(run: Run, write: Write) -> None:
    gpu = pool("gpu").replace("e2-standard-4", "a2-highgpu-1g")
    file = write("pools.yaml", gpu)
    results = [run("check", "-o", "json", file, *flags).json["results"] for flags in ([], ["--cluster", "prod"])]
    ids = [sorted((each["id"], each["outcome"]) for each in found) for found in results]
    assert ids[0] == ids[1]
    assert any(name.startswith("on-demand-fallback/") for name, _ in ids[0])


def test_shipped_policies_stand_beside_an_exemption_of_ones_own(run: Run, write: Write) -> None:
    write("state.yaml", ONE[0])
    web = write("web.yaml", WEB.replace("name: web,", "name: web, namespace: old,"))
    own = write("own/exempt.yaml", EXEMPTION)
    assert "spot-suitability/bare-pod" in [each["id"] for each in run("check", "-o", "json", web).json["results"]]
    done = run("check", "-o", "json", web, "--policies", "shipped", "--policies", own.parent)
    assert not [each for each in done.json["results"] if each["policy"].startswith("spot-")]
    alone = run("check", web, "--policies", own.parent)
    assert alone.code == 2
    assert "--policies shipped" in alone.err


def test_a_policy_of_ones_own_replaces_the_shipped_one_of_its_kind_and_name(run: Run, write: Write) -> None:
    own = "apiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {name: spot-suitability}\nspec: {enforcement: off}\n"
    write("repo/.spotgate.yaml", "policies: [shipped, own]\n")
    write("repo/own/suitability.yaml", own.replace("off", '"off"'))
    web = write("repo/web.yaml", WEB)
    found = run("check", "-o", "json", web).json["results"]
    assert {each["policy"] for each in found} == {"spot-placement"}


def test_a_policy_with_the_name_of_a_shipped_one_of_another_kind_is_an_error(run: Run, write: Write) -> None:
    write("own/all.yaml", POLICIES.replace("name: labels", "name: spot-suitability"))
    done = run("check", write("web.yaml", WEB), "--policies", "shipped", "--policies", "own")
    assert done.code == 2
    assert "'spot-suitability' is also the name of SpotSuitability" in done.err


# Manifests as people write them


def test_a_namespace_that_is_judged_keeps_the_labels_that_it_has_in_the_state(run: Run, write: Write) -> None:
    labelled = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {spotgate.dev/capacity: spot}}\n"
    state = write("state.yaml", "\n---\n".join((labelled, *ONE)))
    bare = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
    web = WEB.replace(", labels: {spotgate.dev/capacity: spot}", ", namespace: shop")
    done = run("check", "-o", "json", write("web.yaml", f"{bare}---\n{web}"), "--state", state)
    assert "gke-spot" in patch(done)


def test_null_in_a_template_of_a_custom_resource_is_as_if_it_were_not_there(run: Run, write: Write) -> None:
    template = {
        "metadata": None,
        "spec": {"nodeSelector": {"a": None}, "containers": [{"name": "ray", "resources": {"limits": {"cpu": None}}}]},
    }
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
    spec = {"headGroupSpec": {"rayStartParams": {}, "template": template}}
    done = run("check", "-o", "json", write("ray.json", json.dumps(cluster | {"spec": spec})))
    assert (done.code, done.err, done.json["results"]) == (0, "", [])


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("spec: {containers: [{name: a, ports: [{containerPort: '${PORT}'}]}]}", "${PORT} is a placeholder"),
        ("spec: {containers: '{{ .Values.containers }}'}", "{{ .Values.containers }} is a placeholder"),
        ("spec: {nodeSelector: {a: b}, terminationGracePeriodSeconds: '{% if x %}1'}", "{% if x %} is a placeholder"),
    ],
)
def test_a_placeholder_is_called_one(run: Run, write: Write, field: str, text: str) -> None:
    done = run("check", write("pod.yaml", f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{field}\n"))
    assert done.code == 2
    assert text in done.err


def test_a_placeholder_in_metadata_is_called_one(run: Run, write: Write) -> None:
    done = run("check", write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: '${LABELS}'}\n"))
    assert done.code == 2
    assert "expected a map, got the placeholder ${LABELS}" in done.err


@pytest.mark.parametrize(("beside", "finding"), [((), ["spot-placement/pools-unknown"]), ((pool("spot"),), [])])
def test_nodes_that_cannot_be_read_leave_unknown_whether_there_are_spot_pools(
    run: Run, write: Write, beside: tuple[str, ...], finding: list[str]
) -> None:
    unread = "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {eks.amazonaws.com/nodegroup: 1}}\n"
    state = write("state.yaml", "\n---\n".join((*beside, unread)))
    done = run("check", "-o", "json", write("web.yaml", WEB), "--state", state)
    assert done.code == 2
    placement = [each["id"] for each in done.json["results"] if each["policy"] == "spot-placement"]
    assert placement == finding
