"""`spotgate check --kubeconfig` on a real API server: it gives the verdict of an apply, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import deployment, labeled, node_pool, pod
from tests.controlplane.harness.checking import check
from tests.controlplane.harness.live import admin
from tests.controlplane.harness.populate import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

RESERVED = {"foo.coreweave.cloud/bar": "x"}
SPOT = {"spotgate.dev/capacity": "spot"}


# The state of the cluster


@pytest.mark.usefixtures("bare_pools")
def test_check_sees_the_pools_of_the_cluster_and_the_given_objects(bare_cluster: Cluster) -> None:
    another = node_pool("h200-spot", computeClass="spot", instanceType="gd-8xh200ib-i128")
    assert check(admin(bare_cluster), another).code == 0
    bare_cluster.kubectl("delete", "nodepools.compute.coreweave.com", "h100")
    checked = check(admin(bare_cluster), another)
    assert checked.code == 1
    assert "has no on-demand fallback" in checked.reasons()[0]
    assert check(admin(bare_cluster), another, node_pool("h200")).code == 0


@pytest.mark.usefixtures("bare_pools")
def test_a_pod_is_placed_on_the_spot_pools_of_the_cluster(bare_cluster: Cluster) -> None:
    checked = check(admin(bare_cluster), labeled(pod("web"), SPOT))
    assert checked.code == 0
    (patched,) = checked.report["patches"]
    values = {operation["path"]: operation["value"] for operation in patched["patch"]}
    assert values["/items/0/spec/nodeSelector"] == {"compute.coreweave.com/node-pool": "cpu-spot"}


@pytest.mark.usefixtures("bare_pools")
def test_check_uses_the_versions_of_the_cluster(bare_cluster: Cluster) -> None:
    (node,) = nodes_of(node_pool("cpu", targetNodes=1))
    bare_cluster.kubectl.apply(node)
    without_native_sleep = ("--kubernetes-version=1.25",)
    checked = check(admin(bare_cluster), labeled(pod("web"), SPOT), flags=without_native_sleep)
    bare_cluster.kubectl("delete", "node", node["metadata"]["name"])
    (patched,) = checked.report["patches"]
    lifecycles = [operation["value"] for operation in patched["patch"] if operation["path"].endswith("/lifecycle")]
    assert lifecycles == [{"preStop": {"sleep": {"seconds": 5}}}]


@pytest.mark.usefixtures("bare_pools")
def test_check_uses_the_labels_of_the_clusters_namespace(bare_cluster: Cluster) -> None:
    bare_cluster.kubectl("create", "namespace", "on-spot")
    bare_cluster.kubectl("label", "namespace", "on-spot", "spotgate.dev/capacity=spot")
    there = pod("web")
    there["metadata"]["namespace"] = "on-spot"
    checked = check(admin(bare_cluster), there, pod("web"))
    assert [patch["namespace"] for patch in checked.report["patches"]] == ["on-spot"]


# The kubeconfig


@pytest.fixture
def two_contexts(bare_cluster: Cluster, tmp_path: Path) -> Path:
    """Return a kubeconfig with a broken current context, and another context that sets a namespace."""
    file = tmp_path / "kubeconfig"
    content = yaml.safe_load(admin(bare_cluster).read_text())
    (context,) = content["contexts"]
    context["context"]["namespace"] = "team"
    content["clusters"].append({"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}})
    content["contexts"].append({"name": "gone", "context": {"cluster": "gone", "user": context["context"]["user"]}})
    content["current-context"] = "gone"
    file.write_text(yaml.safe_dump(content))
    return file


def test_context_selects_another_context_and_its_namespace(two_contexts: Path) -> None:
    checked = check(two_contexts, labeled(pod("web"), RESERVED), node_pool("h100"), flags=("--context=spotgate",))
    assert checked.code == 1
    assert [result["namespace"] for result in checked.report["results"]] == ["team"]


# Requests to the API server


@pytest.fixture
def stored(bare_cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Store a Deployment with a reserved label on its Pods, without a webhook, and yield it."""
    web = labeled(deployment("web", 1), RESERVED)
    bare_cluster.kubectl.apply(web)
    yield web
    bare_cluster.kubectl("delete", "deployment", "web")


def test_an_object_that_exists_is_judged_as_an_update(bare_cluster: Cluster, stored: dict[str, Any]) -> None:
    assert check(admin(bare_cluster), stored).code == 0
    created = check(admin(bare_cluster), stored, flags=("--operation=CREATE",))
    assert (created.code, len(created.reasons())) == (1, 1)
    stored["spec"]["template"]["metadata"]["labels"]["new.coreweave.cloud/bar"] = "x"
    assert check(admin(bare_cluster), stored).reasons() == [
        "label new.coreweave.cloud/bar is in the reserved domain coreweave.cloud"
    ]


def test_existing_objects_are_updates_and_others_are_creations(bare_cluster: Cluster, stored: dict[str, Any]) -> None:
    checked = check(admin(bare_cluster), stored, labeled(deployment("other", 1), RESERVED))
    assert [result["name"] for result in checked.report["results"]] == ["other"]


@pytest.mark.usefixtures("bare_pools")
def test_a_deletion_judges_the_stored_object_and_not_the_file(bare_cluster: Cluster) -> None:
    as_in_the_file = node_pool("h100", computeClass="spot")
    deleted = check(admin(bare_cluster), as_in_the_file, flags=("--operation=DELETE",))
    assert deleted.code == 1
    assert deleted.reasons() == ["NodePool h100 is the last on-demand fallback of GPU spot pool NodePool h100-spot"]
    assert check(admin(bare_cluster), node_pool("never-was"), flags=("--operation=DELETE",)).code == 0


# Permissions


@pytest.fixture
def guest(bare_cluster: Cluster) -> Iterator[Path]:
    """Yield the kubeconfig of a user who may read only Namespaces, and Pods in namespace default."""
    kubectl = bare_cluster.kubectl
    kubectl("create", "serviceaccount", "guest")
    kubectl("create", "clusterrole", "guest", "--verb=list", "--resource=namespaces")
    kubectl("create", "clusterrolebinding", "guest", "--clusterrole=guest", "--serviceaccount=default:guest")
    kubectl("create", "role", "guest", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "guest", "--role=guest", "--serviceaccount=default:guest")
    yield bare_cluster.as_service_account("default", "guest").kubeconfig
    for kind in ("clusterrolebinding", "clusterrole", "rolebinding", "role", "serviceaccount"):
        kubectl("delete", kind, "guest")


def test_forbidden_reads_are_reported_and_make_dependent_findings_indeterminate(guest: Path) -> None:
    checked = check(guest, node_pool("h200-spot", computeClass="spot"), labeled(pod("web"), RESERVED))
    assert checked.code == 2
    forbidden = 'is forbidden: User "system:serviceaccount:default:guest" cannot list resource'
    unread = "nodepools.compute.coreweave.com, nodes, poddisruptionbudgets.policy can't be read: 403 Forbidden"
    assert f"{guest}: {unread}: poddisruptionbudgets.policy {forbidden}" in checked.err
    assert "the cluster's version of this object can't be read: 403 Forbidden" in checked.err
    assert "namespaces can't be read" not in checked.err
    assert any("fallback" in reason for reason in checked.reasons("indeterminate"))
    assert checked.reasons() == ["label foo.coreweave.cloud/bar is in the reserved domain coreweave.cloud"]


def test_objects_that_no_policy_matches_are_not_read_from_the_cluster(guest: Path) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}}
    assert "what the cluster has of this object" not in check(guest, secret).err


@pytest.mark.usefixtures("bare_pools")
def test_check_writes_nothing(bare_cluster: Cluster) -> None:
    check(admin(bare_cluster), labeled(pod("web"), SPOT), node_pool("h100"))
    check(admin(bare_cluster), node_pool("h100"), flags=("--operation=DELETE",))
    assert not [event for event in bare_cluster.audit_events() if event.get("userAgent", "").startswith("spotgate/")]
