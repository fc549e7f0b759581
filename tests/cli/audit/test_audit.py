"""The requests of an audit, and the reports that it writes to the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from tests.builders import BUNDLE, pool_of
from webhook.base.exits import CannotJudgeError
from webhook.capacity.providers.nodes import Node
from webhook.capacity.providers.pool import CapacityType
from webhook.capacity.providers.provider import sizers_by_resource
from webhook.capacity.view import ClusterView, spot_nodes
from webhook.cluster.discovery import ServedResource
from webhook.cluster.view import NodeFacts, node_facts, with_nodes
from webhook.commands.audit import run
from webhook.commands.audit.run import Listed, listed_resources
from webhook.commands.shared.policy_reports import AT_MOST, RESULT_TEXT_AT_MOST, report_kinds, reports_of
from webhook.engine.bundle import load_bundle
from webhook.formats import table
from webhook.kube.disruption import GROUP, RESOURCE
from webhook.kube.references import KINDS
from webhook.kube.resources import Resource
from webhook.report.report import ObjectReport, ReclaimRisk, Report, Result

if TYPE_CHECKING:
    from webhook.engine.bundle import Bundle

COMPONENTS = Path(__file__).parents[3] / "manifests" / "components"
MATCHES_ALL = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: everything}
spec:
  match: {resourceRules: [{apiGroups: ["*"], resources: ["*"], operations: [CREATE]}]}
  validations: [{expression: "true"}]
"""
LABELS_ONLY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: services}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [services, pods], operations: [CREATE]}]}
  domains: [example.com]
"""


def served(
    group: str, plural: str, *, namespaced: bool = True, verbs: frozenset[str] = frozenset({"list"})
) -> ServedResource:
    return ServedResource(resource=Resource(group, plural.title(), plural, namespaced), version="v1", verbs=verbs)


SERVED = [
    served("batch", "jobs"),
    served("", "configmaps"),
    served("", "nodes", namespaced=False),
    served("", "pods"),
    served("", "secrets"),
    served("", "bindings", verbs=frozenset({"create"})),
    served("apps", "deployments"),
    served("apps", "replicasets"),
]


def keys(bundle: Bundle, *, cluster_scoped: bool = True) -> list[tuple[str, str]]:
    return [resource.key for resource in listed_resources(bundle.index, SERVED, cluster_scoped=cluster_scoped)]


@pytest.fixture
def everything(tmp_path: Path) -> Bundle:
    (tmp_path / "policy.yaml").write_text(MATCHES_ALL)
    return load_bundle([tmp_path])


def test_secrets_and_configmaps_are_never_read(everything: Bundle) -> None:
    listed = keys(everything)
    assert listed[:3] == [("", "pods"), ("apps", "replicasets"), ("batch", "jobs")]  # owned objects before their owners
    assert set(listed[3:]) == {("apps", "deployments"), ("", "nodes")}
    assert ("", "nodes") not in keys(everything, cluster_scoped=False)


def test_only_resources_that_a_policy_matches_are_read() -> None:
    assert keys(BUNDLE) == [("", "pods"), ("apps", "replicasets"), ("batch", "jobs"), ("apps", "deployments")]


def test_only_metadata_is_read_of_objects_judged_by_labels(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(LABELS_ONLY)
    listed = listed_resources(load_bundle([tmp_path]).index, [*SERVED, served("", "services")], cluster_scoped=True)
    assert {resource.key: resource.metadata_only for resource in listed}[("", "services")]
    assert not any(resource.metadata_only for resource in listed if resource.key != ("", "services"))


def test_the_component_may_list_what_the_shipped_policies_need_and_do_nothing_else() -> None:
    bundle = BUNDLE
    providers = bundle.providers.values()
    wanted = {("", "namespaces"), ("", "nodes"), ("", "pods"), (GROUP, RESOURCE), *bundle.index.workloads}
    pools = {(reader.group, reader.resource) for reader in bundle.readers if reader.served}
    wanted |= {*pools, *sizers_by_resource(providers), *((group, plural) for group, _, plural in KINDS.values())}
    documents = yaml.safe_load_all((COMPONENTS / "audit" / "rbac.yaml").read_text())
    (role,) = (item for item in documents if item["kind"] == "ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list"}
    given = {(group, plural) for rule in role["rules"] for group in rule["apiGroups"] for plural in rule["resources"]}
    assert given == wanted


# Reports


@pytest.mark.parametrize(
    ("name", "labels", "denied"),
    [
        ("shop", {"ns.coreweave.cloud/org": "ac3e77"}, []),
        ("hpc-verification", {"ns.coreweave.cloud/org": "control-plane"}, []),
        ("cw-metrics", {}, []),
        ("kube-system", {"a.coreweave.cloud/b": "c"}, []),
        ("shop", {"ns.coreweave.cloud/org": "ac3e77", "a.coreweave.cloud/b": "c"}, ["shop"]),
    ],
)
def test_labels_that_the_platform_sets_on_namespaces_are_no_finding(
    name: str, labels: dict[str, str], denied: list[str]
) -> None:
    view = ClusterView(pools=(), providers=frozenset({"cks"}), namespaces={name: labels})
    namespaces = ServedResource(
        resource=Resource("", "Namespace", "namespaces", namespaced=False), version="v1", verbs=frozenset()
    )
    listed = Listed(served=namespaces, workload=False, metadata_only=True)
    judging = run.Audited(BUNDLE, view, [listed], [])
    judging.take(listed, [msgspec.Raw(msgspec.json.encode({"metadata": {"name": name, "labels": labels}}))])
    assert [judged.name for judged in judging.objects] == denied


def result(number: int, outcome: str = "deny", namespace: str = "shop") -> Result:
    return Result(
        file=f"Pod/{namespace}/web-{number}",
        line=0,
        column=0,
        api_version="v1",
        kind="Pod",
        namespace=namespace,
        name=f"web-{number}",
        policy="labels",
        id="reserved-labels/reserved",
        outcome=outcome,
        reason="r" * 2000,
        detail="d" * 9000,
        field="metadata.labels",
        fix="f",
    )


def report(*results: Result, fail_on: str = "deny") -> Report:
    objects = [
        ObjectReport(file=item.file, line=0, kind="Pod", namespace=item.namespace, name=item.name, results=[item])
        for item in results
    ]
    return Report(objects=objects, fail_on=fail_on)


def test_only_namespaces_with_failures_get_a_report() -> None:
    failing = report(result(1), result(2, "warn"), result(3, "warn", "other"), result(4, namespace=""))
    assert {name: len(fields["results"]) for name, fields in reports_of(failing)} == {"shop": 1, "": 1}
    on_warnings = msgspec.structs.replace(failing, fail_on="warn")
    shown = dict(reports_of(on_warnings))
    assert {name: len(fields["results"]) for name, fields in shown.items()} == {"shop": 2, "other": 1, "": 1}
    assert shown["shop"]["summary"] == {"pass": 0, "fail": 1, "warn": 1, "error": 0, "skip": 0}


def test_a_report_is_bounded_and_counts_omitted_results() -> None:
    ((_, fields),) = reports_of(report(*(result(number) for number in range(AT_MOST + 5))))
    assert len(fields["results"]) == AT_MOST
    assert fields["summary"]["fail"] == AT_MOST + 5
    assert fields["results"][-1]["properties"]["leftOut"] == "5"
    assert max(len(text) for entry in fields["results"] for text in entry["properties"].values()) == RESULT_TEXT_AT_MOST
    assert len(msgspec.json.encode(fields)) < 600 * 1024


@pytest.mark.parametrize(
    ("resources", "group"),
    [
        ([("openreports.io", "reports"), ("openreports.io", "clusterreports")], "openreports.io"),
        ([("wgpolicyk8s.io", "policyreports"), ("wgpolicyk8s.io", "clusterpolicyreports")], "wgpolicyk8s.io"),
    ],
)
def test_reports_use_the_crd_that_the_cluster_has(resources: list[tuple[str, str]], group: str) -> None:
    assert report_kinds([served(*names) for names in resources]).namespaced.resource.group == group
    with pytest.raises(CannotJudgeError, match="serves neither PolicyReports"):
        report_kinds([served(*names) for names in resources[:1]])


def test_a_workload_without_a_reason_is_not_a_survivor() -> None:
    risk = ReclaimRisk(
        api_version="v1", kind="Pod", namespace="shop", name="web", pods=1, pools=["gpu-spot"], reasons=[]
    )
    shown = table.render(msgspec.structs.replace(report(), on_spot=[risk]))
    assert "not checked: whether the Pods fit on other nodes" in shown
    assert "`spotgate rehearse --lose gpu-spot --kubeconfig FILE`" in shown
    assert "not evaluated" not in table.render(msgspec.structs.replace(report(), on_spot=[]))


# Which Nodes are spot


def node(name: str, **labels: str) -> NodeFacts:
    return node_facts(labels, Node(), BUNDLE.providers.values(), name)


def test_spot_nodes_are_recognized_by_label_or_pool() -> None:
    pools = (
        pool_of("a", pool_name="a"),
        pool_of("b", CapacityType.ON_DEMAND, pool_name="b"),
        pool_of("c", CapacityType.BOTH, provider="karpenter", pool_name="c"),
    )
    nodes = [
        node("spot-pool", **{"compute.coreweave.com/node-pool": "a"}),
        node("other-pool", **{"compute.coreweave.com/node-pool": "b"}),
        node("no-pool", **{"compute.coreweave.com/node-pool": "gone"}),
        node("both-spot", **{"karpenter.sh/nodepool": "c", "karpenter.sh/capacity-type": "spot"}),
        node("both-on-demand", **{"karpenter.sh/nodepool": "c", "karpenter.sh/capacity-type": "on-demand"}),
        node("unseen-pool", **{"cloud.google.com/gke-nodepool": "d", "cloud.google.com/gke-spot": "true"}),
        node("of-nobody"),
    ]
    view = ClusterView(pools=pools, nodes=with_nodes(ClusterView(), nodes).nodes)
    assert {name: pool and pool.name for name, (_, pool) in spot_nodes(view).items()} == {
        "spot-pool": "a",
        "both-spot": "c",
        "unseen-pool": None,
    }


def test_a_workload_below_its_on_demand_floor_is_listed() -> None:
    pool = pool_of("cpu-spot", pool_name="cpu-spot")
    label = {"compute.coreweave.com/node-pool": "cpu-spot"}
    nodes = [node_facts(labels, Node(), BUNDLE.providers.values(), name) for name, labels in (("s", label), ("o", {}))]
    view = ClusterView(pools=(pool,), nodes=with_nodes(ClusterView(), nodes).nodes)
    kinds = (("", "Pod", "pods"), ("apps", "ReplicaSet", "replicasets"), ("apps", "Deployment", "deployments"))
    listed = [
        Listed(
            served=ServedResource(
                resource=Resource(group, kind, plural, namespaced=True), version="v1", verbs=frozenset({"list"})
            ),
            workload=True,
            metadata_only=False,
        )
        for group, kind, plural in kinds
    ]

    def owned(name: str, owner: str, owner_kind: str, **rest: Any) -> dict[str, Any]:
        reference = {"apiVersion": "apps/v1", "kind": owner_kind, "name": owner, "uid": "1", "controller": True}
        return {
            "metadata": {"name": name, "namespace": "shop", "ownerReferences": [reference], **rest.pop("metadata", {})},
            **rest,
        }

    floor = {"annotations": {"spotgate.dev/on-demand-floor": "2"}}
    spec = {"containers": [{"name": "main", "image": "x"}]}
    pods = [
        owned(f"web-{node}{number}", "web-1", "ReplicaSet", metadata=floor, spec={**spec, "nodeName": node})
        for number, node in enumerate("sso")
    ]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    replica_set = owned("web-1", "web", "Deployment", spec={"template": template})
    deployment = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": template}}
    audited = run.Audited(BUNDLE, view, listed, [])
    for resource, objects in zip(listed, ([*pods], [replica_set], [deployment]), strict=True):
        audited.take(resource, [msgspec.Raw(msgspec.json.encode(thing)) for thing in objects])
    (risk,) = audited.on_spot.risks()
    reasons = {reason.id: reason.reason for reason in risk.reasons}
    assert reasons["spot-placement/floor-not-kept"] == "1 of 3 Pods run on demand, fewer than the on-demand floor of 2"
