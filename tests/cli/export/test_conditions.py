"""The match conditions select exactly the requests that concern a policy, and never fail."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.builders import BUNDLE, cluster, decided, defaulted, embedded, review
from tests.cli.export.selection import WEBHOOKS, called
from tests.rules.conftest import shipped_provider, with_fields
from webhook.capacity.providers.query import Query
from webhook.registration.object_conditions import BUILT_IN
from webhook.registration.pool_conditions import ExcludedField, unasked_fields
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView

JSON = dict[str, Any]

CKS_POOLS = "compute.coreweave.com/nodepools"
PATHS = [
    (f"{workload.group}/{workload.resource}".lstrip("/"), path.text)
    for workload in BUNDLE.index.workloads.values()
    for path in workload.paths
]
TESTED = [
    (f"{workload.group}/{workload.resource}".lstrip("/"), path.text)
    for workload in BUNDLE.index.workloads.values()
    if workload.group in BUILT_IN
    for path in workload.paths
]
KEYS = st.sampled_from(
    (
        *(
            "spotgate.dev/capacity",
            "spotgate.dev/node-pool",
            "spotgate.dev/break-glass",
            "spotgate.dev/capcity",
            "spotgate.dev/keep",
        ),
        *("qos.coreweave.cloud/interruptable", "interruptible", "x.coreweave.com/y", "coreweave.com/y", "app"),
    )
)
VALUES = st.sampled_from(("spot", "spot-preferred", "on-demand", "p0", "true", "false"))
some = st.dictionaries(KEYS, VALUES, max_size=2)


any_pods, placements = strategies.pods(labels={}, annotations={}), strategies.placements()


@st.composite
def pods(draw: st.DrawFn) -> JSON:
    pod = draw(any_pods)
    pod["metadata"] |= {"labels": draw(some), "annotations": draw(some)}
    pod["spec"] |= draw(placements)
    if draw(st.booleans()):
        pod["spec"]["nodeName"] = "cpu-spot-0"
    if draw(st.booleans()):
        pod["spec"]["containers"][0]["image"] = "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1"
    return pod


def number(text: str) -> int | float:
    """Return an integer as the API server decodes it: as a float if it exceeds 64 bits."""
    value = int(text)
    return value if -(2**63) <= value < 2**63 else float(text)


def request_of(body: bytes) -> JSON:
    request: JSON = json.loads(body, parse_int=number)["request"]
    return request


# For objects that no policy evaluated: these need no judgment.
NOT_JUDGED = {"object/unreadable", "object/template-unreadable", "object/too-large"}


def decides(body: bytes, phase: Phase, view: ClusterView) -> bool:
    """Return whether `decide` finds or changes anything."""
    decision = decided(body, phase, view)
    findings = [finding for finding in decision.findings if finding.id not in NOT_JUDGED]
    return bool(findings or decision.patch)


def assert_sent(body: bytes, view: ClusterView, namespace_labels: JSON) -> None:
    request = request_of(body)
    names = called(request, namespace_labels)
    for phase in Phase:
        if decides(body, phase, view):
            assert [name for name in names if WEBHOOKS[name]["clientConfig"]["service"]["path"] == f"/{phase}"], request


namespaces = st.sampled_from(({}, {}, {"spotgate.dev/capacity": "spot"}, {"spotgate.dev/capacity": "spto"}))
views = strategies.node_pools()


@given(pods(), views, namespaces)
def test_every_pod_with_a_decision_is_sent(pod: JSON, pools: list[JSON], labels: JSON) -> None:
    assert_sent(review(defaulted(pod)), cluster(pools, labels), labels)


@given(pods(), pods(), views, namespaces)
def test_every_pod_update_with_a_decision_is_sent(pod: JSON, other: JSON, pools: list[JSON], labels: JSON) -> None:
    old = {**pod, "metadata": pod["metadata"] | {"labels": other["metadata"]["labels"]}}
    assert_sent(review(pod, operation="UPDATE", old=old), cluster(pools, labels), labels)


@given(st.sampled_from(PATHS), pods(), some, some, views, namespaces, st.integers(0, 4))
def test_every_workload_with_a_decision_is_sent(
    place: tuple[str, str], pod: JSON, labels: JSON, annotations: JSON, pools: list[JSON], namespace: JSON, count: int
) -> None:
    resource, path = place
    thing = embedded(path, pod)
    thing["metadata"] |= {"labels": labels, "annotations": annotations}
    if "spec" in thing:
        thing["spec"]["replicas"] = count
    view = cluster(pools, namespace)
    assert_sent(review(thing, resource, kind="Deployment"), view, namespace)
    for old in (embedded(path, {}), {**thing, "metadata": {"name": "x"}}, _with_replicas(thing, 4)):
        assert_sent(review(thing, resource, kind="Deployment", operation="UPDATE", old=old), view, namespace)


def _with_replicas(thing: JSON, count: int) -> JSON:
    return {**thing, "spec": thing["spec"] | {"replicas": count}} if "spec" in thing else thing


# The API server rejects wrong types in built-in kinds before it calls webhooks.
CUSTOM = [
    place
    for place in PATHS
    if place[0].partition("/")[0] not in {"apps", "batch", "replicationcontrollers", "podtemplates"}
]


@given(
    st.sampled_from(CUSTOM),
    strategies.corrupted(pods()),
    strategies.json_values,
    st.sampled_from(("CREATE", "UPDATE")),
)
def test_no_condition_fails_on_any_custom_resource(
    place: tuple[str, str], pod: JSON, value: Any, operation: str
) -> None:
    resource, path = place
    for thing in (embedded(path, pod), embedded(path, value), {"metadata": {"name": "x"}, "spec": value}):
        for old in (thing, {"metadata": {"name": "x"}, "spec": pod}):
            called(request_of(review(thing, resource, operation=operation, old=old if operation == "UPDATE" else None)))


pool = strategies.node_pool_named("p0")


@given(new=pool, old=pool, pools=views, alike=st.booleans())
def test_every_pool_change_with_a_decision_is_sent(*, new: JSON, old: JSON, pools: list[JSON], alike: bool) -> None:
    if alike:
        old = copy.deepcopy(new) | {"spec": new["spec"] | {"targetNodes": old["spec"]["targetNodes"]}}
    assert_sent(review(new, CKS_POOLS, operation="UPDATE", old=old), cluster([old, *pools[1:]], {}), {})


# Requests that are not sent


PLAIN: JSON = {
    "metadata": {"name": "x", "labels": {"app": "web"}, "annotations": {"team": "blue"}},
    "spec": {
        "containers": [{"name": "main", "image": "registry.example.com/app:1"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    },
}
DAEMON = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
OF_DAEMON_SET = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [DAEMON]}}}


def sent_to(value: Any, resource: str = "pods", **more: Any) -> list[str]:
    return called(request_of(review(value, resource, **more)))


@pytest.mark.parametrize(
    ("value", "resource", "more"),
    [
        pytest.param(PLAIN, "pods", {}, id="Pod"),
        pytest.param(
            {**PLAIN, "spec": PLAIN["spec"] | {"affinity": OF_DAEMON_SET}}, "pods", {}, id="Pod of a DaemonSet"
        ),
        *(pytest.param(embedded(path, PLAIN), resource, {}, id=f"{resource} {path}") for resource, path in TESTED),
    ],
)
def test_requests_that_concern_no_policy_are_not_sent(value: JSON, resource: str, more: JSON) -> None:
    assert sent_to(value, resource, **more) == []
    assert sent_to(value, resource, operation="UPDATE", old=value) == []


SPOT: JSON = {
    "metadata": {"name": "x"},
    "spec": {"replicas": 3, "template": {"metadata": {"labels": {"spotgate.dev/capacity": "spot"}}}},
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [({}, False), ({"replicas": 2}, True), ({"template": SPOT["spec"]["template"] | {"spec": {"priority": 1}}}, True)],
)
def test_an_update_of_a_spot_workload_is_sent_if_the_verdict_may_change(change: JSON, *, expected: bool) -> None:
    new = {**SPOT, "spec": {**SPOT["spec"], **change}}
    assert bool(sent_to(new, "apps/deployments", operation="UPDATE", old=SPOT)) is expected


def test_a_revision_written_by_a_controller_is_not_sent() -> None:
    new = {**SPOT, "metadata": {"name": "x", "annotations": {"deployment.kubernetes.io/revision": "2"}}}
    assert sent_to(new, "apps/deployments", operation="UPDATE", old=SPOT) == []


# Node pools


def manifest_of(spec: JSON, **metadata: Any) -> JSON:
    return {"metadata": {"name": "x", **metadata}, "spec": spec}


GUARDED, OPEN = "node-pools", "node-pool-updates"


@pytest.mark.parametrize(
    ("resource", "old", "new", "expected"),
    [
        # size field of each reader: without a webhook, growing passes and shrinking doesn't
        (CKS_POOLS, {"targetNodes": 1}, {"targetNodes": 2}, [OPEN]),
        (CKS_POOLS, {"targetNodes": 2}, {"targetNodes": 1}, [GUARDED, OPEN]),
        (CKS_POOLS, {"targetNodes": 1, "maxNodes": 3}, {"targetNodes": 2, "maxNodes": 2}, [GUARDED, OPEN]),
        (CKS_POOLS, {"targetNodes": 1}, {}, [GUARDED, OPEN]),
        (CKS_POOLS, {}, {"targetNodes": 1}, [GUARDED, OPEN]),
        (CKS_POOLS, {"targetNodes": 1}, {"targetNodes": "2"}, [GUARDED, OPEN]),
        (CKS_POOLS, {"targetNodes": 1}, {"targetNodes": 2, "computeClass": "spot"}, [GUARDED, OPEN]),
        (CKS_POOLS, {"targetNodes": 1, "computeClass": "spot"}, {"targetNodes": 2}, [GUARDED, OPEN]),
        (CKS_POOLS, {"targetNodes": 1}, {"targetNodes": 1}, []),
        ("cluster.x-k8s.io/machinepools", {"replicas": 1}, {"replicas": 2}, []),
        ("cluster.x-k8s.io/machinepools", {"replicas": 2}, {"replicas": 0}, [GUARDED]),
        ("eks.services.k8s.aws/nodegroups", {"scalingConfig": {"desiredSize": 1}}, {"scalingConfig": {"desiredSize": 2}}, [OPEN]),
        ("eks.services.k8s.aws/nodegroups", {"scalingConfig": {"desiredSize": 2}}, {"scalingConfig": {"desiredSize": 1}}, [GUARDED, OPEN]),
        ("eks.services.k8s.aws/nodegroups", {"scalingConfig": {"desiredSize": 1}}, {"scalingConfig": 7}, [GUARDED, OPEN]),
        ("eks.services.k8s.aws/nodegroups", {"scalingConfig": {"desiredSize": 1, "minSize": 1}}, {"scalingConfig": {"desiredSize": 2, "minSize": 0}}, [GUARDED, OPEN]),
    ],
)  # fmt: skip
def test_a_pool_update_is_guarded_unless_the_pool_only_grows(
    resource: str, old: JSON, new: JSON, expected: list[str]
) -> None:
    assert sent_to(manifest_of(new), resource, operation="UPDATE", old=manifest_of(old)) == expected


BREAK_GLASS = {"spotgate.dev/break-glass": "drill"}
READ = {"cnrm.cloud.google.com/remove-default-node-pool": "true"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"finalizers": ["example.com/hold"]}, {}, []),
        ({"finalizers": ["a"], "deletionTimestamp": "2026-11-22T00:00:00Z"}, {"deletionTimestamp": "2026-11-22T00:00:00Z"}, []),
        ({}, {"annotations": {"karpenter.sh/nodepool-hash": "1"}}, []),
        ({"annotations": {"karpenter.sh/nodepool-hash": "1"}}, {"annotations": {"karpenter.sh/nodepool-hash": "2"}}, []),
        ({}, {"annotations": BREAK_GLASS}, [GUARDED]),
        ({"annotations": BREAK_GLASS}, {"annotations": {"spotgate.dev/break-glass": "again"}}, [GUARDED]),
        ({"annotations": BREAK_GLASS}, {}, []),
        ({}, {"annotations": READ}, [GUARDED]),
        ({"annotations": READ}, {}, [GUARDED]),
        ({}, {"labels": {"team": "blue"}}, [GUARDED]),
        ({}, {"ownerReferences": [{"uid": "1"}]}, [GUARDED]),
        ({}, {"managedFields": [{"manager": "x"}], "resourceVersion": "2"}, []),
    ],
)  # fmt: skip
def test_only_the_pool_metadata_that_is_read_is_guarded(old: JSON, new: JSON, expected: list[str]) -> None:
    for resource in (CKS_POOLS, "karpenter.sh/nodepools", "container.cnrm.cloud.google.com/containerclusters"):
        values = [{**manifest_of({"targetNodes": 1}, **edit), "status": {"n": n}} for n, edit in enumerate((new, old))]
        assert sent_to(values[0], resource, operation="UPDATE", old=values[1]) == expected


def test_pool_creation_and_deletion_are_guarded_except_from_cleanup() -> None:
    gone = manifest_of({"targetNodes": 1})
    assert sent_to(gone, CKS_POOLS) == [GUARDED]
    assert sent_to(None, CKS_POOLS, operation="DELETE", old=gone) == [GUARDED]
    for name in ("namespace-controller", "generic-garbage-collector"):
        user = f"system:serviceaccount:kube-system:{name}"
        assert sent_to(None, CKS_POOLS, operation="DELETE", old=gone, user=user) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"), [(1, 2, []), (2, 1, [GUARDED]), (1, None, [GUARDED]), (None, 3, [])]
)
def test_scaling_down_is_guarded(old: int | None, new: int | None, expected: list[str]) -> None:
    scales = [{"metadata": {"name": "x"}, "spec": {} if n is None else {"replicas": n}} for n in (new, old)]
    assert sent_to(scales[0], CKS_POOLS, operation="UPDATE", old=scales[1], subresource="scale") == expected


# Excluded fields of node pools

AWS = ("infrastructure.cluster.x-k8s.io", "awsmanagedmachinepools")
POOL = next(reader for reader in shipped_provider("eks").readers if (reader.group, reader.resource) == AWS)
SCALING = {"scaling": {"maxSize": ExcludedField.SIZE}}


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        pytest.param({}, {"providerIDList": ExcludedField.CONTROLLERS}, id="not read"),
        pytest.param({"zones": Query("spec.providerIDList")}, {}, id="read by the reader"),
        pytest.param({"zones": Query("[spec][?providerIDList].zone")}, {}, id="read by a condition"),
        pytest.param({"controller_fields": ("spec.scaling",)}, {}, id="a descendant is read"),
        pytest.param({"controller_fields": ("spec.taints.x",)}, {}, id="an ancestor is read"),
    ],
)
def test_a_change_of_a_controllers_field_is_sent_only_if_the_field_is_read(
    changed: dict[str, Any], fields: dict[str, ExcludedField]
) -> None:
    provider = with_fields(shipped_provider("eks"), readers=(with_fields(POOL, **changed),))
    assert unasked_fields([provider])[AWS] == {"spec": SCALING | fields}


def test_a_change_of_a_field_that_another_provider_reads_is_sent() -> None:
    other = with_fields(POOL, zones=Query("spec.providerIDList"), controller_fields=())
    providers = [with_fields(shipped_provider("eks"), readers=(reader,)) for reader in (POOL, other)]
    assert unasked_fields(providers)[AWS] == {"spec": SCALING}


def test_provider_ids_of_shipped_machine_pools_are_not_sent() -> None:
    unasked = unasked_fields(BUNDLE.providers.values())
    machine_pools = {resource: tree for (_, resource), tree in unasked.items() if resource.endswith("machinepools")}
    assert len(machine_pools) == 9
    for tree in machine_pools.values():
        spec = tree["spec"]
        assert isinstance(spec, dict)
        assert spec["providerIDList"] is ExcludedField.CONTROLLERS
