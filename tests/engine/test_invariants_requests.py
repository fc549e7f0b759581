"""Invariants of every request: any object, label, or change of a node pool, on the server and offline."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.builders import BUNDLE, NOW, Admission, answered, cluster, defaulted, embedded, response, review, workload_at
from tests.engine import scheduler
from webhook.capacity.view import ClusterView
from webhook.documents import read_documents
from webhook.engine.enforcement import BUILT_IN_CONTROLLERS
from webhook.engine.engine import decide
from webhook.inputs.objects import Manifest
from webhook.judging.judge import Judge
from webhook.judging.kinds import ResourceKinds
from webhook.kube.defaults import default_object
from webhook.model.review import UserInfo, decode_review
from webhook.rules.context import Context, Phase

JSON = dict[str, Any]

NODE_POOLS = "compute.coreweave.com/nodepools"
LABELS = {"spotgate.dev/capacity": st.just("spot"), "x.coreweave.com/y": st.just("z")}
ANNOTATIONS = {
    "spotgate.dev/node-pool": st.sampled_from(strategies.POOL_NAMES),
    "spotgate.dev/break-glass": st.just("x"),
}
pods = strategies.pods(labels=LABELS, annotations=ANNOTATIONS)


PATHS = [
    (f"{workload.group}/{workload.resource}".lstrip("/"), path)
    for workload in BUNDLE.index.workloads.values()
    for path in workload.paths
]
objects: st.SearchStrategy[tuple[str, JSON]] = st.one_of(
    pods.map(lambda pod: ("pods", pod)),
    st.builds(
        lambda place, pod: (place[0], workload_at(place[1], pod)),
        st.sampled_from(PATHS),
        pods,
    ),
    strategies.node_pool_named("p0").map(lambda pool: (NODE_POOLS, pool)),
    strategies.json_values.map(lambda value: ("nodes", {"metadata": value})),
)


@given(
    objects.flatmap(lambda pair: st.tuples(st.just(pair[0]), strategies.corrupted(st.just(pair[1])), st.just(pair[1]))),
    st.sampled_from(("CREATE", "UPDATE", "UPDATE", "DELETE", "CONNECT")),
    st.sampled_from(("", "", "scale", "status")),
    st.one_of(st.just(ClusterView()), strategies.node_pools(least=1).map(lambda pools: cluster(pools, {}))),
)
def test_I7_no_object_crashes_the_engine(
    subject: tuple[str, JSON, JSON], operation: str, subresource: str, view: ClusterView
) -> None:
    resource, corrupt, sound = subject
    for value, old in ((corrupt, sound), (sound, corrupt), (corrupt, None), (None, corrupt)):
        body = review(value, resource, operation=operation, old=old, subresource=subresource)
        for phase in Phase:
            answer = response(body, phase, view)
            assert answer["allowed"] or answer["status"]["message"]
            offline = Context(phase=phase, now=NOW, view=view, offline=True, patch_templates=True, trace=True)
            assert not decide(decode_review(body), BUNDLE.index, offline).failures


reserved_keys = st.builds(
    lambda sub, domain, name: f"{sub}{domain}/{name}",
    st.sampled_from(("", "x.", "node.", "a.b.")),
    st.sampled_from(("coreweave.cloud", "coreweave.com")),
    st.sampled_from(("type", "interruptable", "interruptible", "x")),
)


@given(reserved_keys, st.sampled_from(sorted(BUILT_IN_CONTROLLERS)), st.booleans())
def test_a_reserved_label_is_denied_for_users_and_allowed_for_built_in_controllers(
    key: str,
    controller: str,
    in_template: bool,  # noqa: FBT001
) -> None:
    metadata = {"labels": {key: "x"}}
    template = {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}}
    subject, resource = (
        ({"metadata": {"name": "x"}, "spec": {"template": template}}, "apps/deployments")
        if in_template
        else ({**template, "metadata": {"name": "x", **metadata}}, "pods")
    )
    view = cluster([], {})

    denied = response(review(subject, resource), Phase.VALIDATE, view)
    assert not denied["allowed"]
    assert key in denied["status"]["message"]
    assert response(review(subject, resource, user=controller), Phase.VALIDATE, view)["allowed"]


@given(st.dictionaries(reserved_keys, st.sampled_from(("x", "y")), min_size=1), st.data())
def test_an_update_that_only_removes_labels_is_never_denied(labels: dict[str, str], data: st.DataObject) -> None:
    left = {key: labels[key] for key in data.draw(st.sets(st.sampled_from(sorted(labels))))}

    def shapes(labels: JSON) -> dict[str, JSON]:
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app"}]}}
        metadata = {"name": "x", "labels": labels}
        return {
            "pods": {**template, "metadata": metadata},
            "nodes": {"metadata": metadata},
            "apps/deployments": {"metadata": metadata, "spec": {"template": template}},
            "ray.io/rayclusters": {"spec": {"workerGroupSpecs": [{"groupName": "a", "template": template}]}},
            "compute.coreweave.com/nodepools": {
                "metadata": metadata,
                "spec": {"instanceType": "turin-gp", "targetNodes": 1, "nodeLabels": labels},
            },
        }

    before, after = shapes(labels), shapes(left)
    for resource, value in after.items():
        body = review(value, resource, operation="UPDATE", old=before[resource])
        assert response(body, Phase.VALIDATE, cluster([], {}))["allowed"], resource


def group(name: str, labels: JSON, **spec: Any) -> JSON:
    named = {"name": name} if name else {}
    return {**named, "template": {"metadata": {"labels": labels}, "spec": {"containers": [], **spec}}}


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        pytest.param(
            [group("", {}), group("", {"x.coreweave.com/y": "z"})], [1], True, id="the preceding template is removed"
        ),
        pytest.param(
            [group("a", {"x.coreweave.com/y": "z"}), group("a", {})], [0, 1], True, id="two have the same name"
        ),
        pytest.param([group("a", {"x.coreweave.com/y": "z"}), group("b", {})], [1, 0], True, id="they are reordered"),
        pytest.param(
            [group("a", {}, containers={})], [group("a", {"x.coreweave.com/y": "z"})], False, id="it was unreadable"
        ),
    ],
)
def test_an_update_judges_only_new_and_changed_pod_templates(
    before: list[JSON],
    after: list[Any],
    allowed: bool,  # noqa: FBT001
) -> None:
    left = [before[item] if isinstance(item, int) else item for item in after]
    old, new = ({"metadata": {"name": "x"}, "spec": {"tasks": tasks}} for tasks in (before, left))
    body = review(new, "batch.volcano.sh/jobs", operation="UPDATE", old=old)

    assert response(body, Phase.VALIDATE, cluster([], {}))["allowed"] is allowed


def usable(pool: JSON) -> bool:
    """Return whether the pool is an on-demand GPU pool that can have nodes and admits Pods."""
    spec = pool["spec"]
    return (
        not scheduler.is_spot(pool)
        and scheduler.has_gpus(pool)
        and (spec.get("maxNodes", 0) if spec.get("autoscaling") else spec["targetNodes"]) > 0
        and not any(
            taint["key"] in strategies.FORBIDDEN and taint["effect"] != "PreferNoSchedule"
            for taint in spec.get("nodeTaints", ())
        )
    )


changes = st.one_of(
    *map(strategies.node_pool_named, strategies.POOL_NAMES),
    st.tuples(st.sampled_from(("delete", "scale")), st.sampled_from(strategies.POOL_NAMES)),
)


@given(st.lists(changes, max_size=12))
def test_no_allowed_request_leaves_a_gpu_spot_pool_without_fallback(requests: list[Any]) -> None:
    """All other requests are allowed."""
    pools: dict[str, JSON] = {}
    for request in requests:
        after = dict(pools)
        value: JSON | None = None
        subresource = ""
        if isinstance(request, dict):
            name = request["metadata"]["name"]
            operation, value = ("UPDATE" if name in pools else "CREATE"), request
            after[name] = request
        elif request[1] not in pools:
            continue
        elif request[0] == "delete":
            operation, name = "DELETE", request[1]
            del after[name]
        else:
            operation, name, subresource = "UPDATE", request[1], "scale"
            value = {"metadata": {"name": name}, "spec": {}}
            after[name] = {**pools[name], "spec": {**pools[name]["spec"], "targetNodes": 0}}
        body = review(value, NODE_POOLS, operation=operation, old=pools.get(name), subresource=subresource, name=name)
        answer = response(body, Phase.VALIDATE, cluster(list(pools.values()), {}))
        allowed = "deny" not in answer.get("auditAnnotations", {}).get("on-demand-fallback", "")

        needy = any(scheduler.is_spot(pool) and scheduler.has_gpus(pool) for pool in after.values())
        assert allowed == (not needy or any(map(usable, after.values())))
        if allowed:
            pools = after


def manifest(value: JSON) -> Manifest:
    (document,) = read_documents(json.dumps(value).encode(), "x.json")
    return Manifest(document, (), value["apiVersion"], value["kind"], value)


@given(pods.map(defaulted), strategies.node_pools())
def test_check_and_the_webhook_give_the_same_findings_for_a_pod(pod: JSON, pools: list[JSON]) -> None:
    admission = Admission.of(pod, pools, {})
    context = Context(phase=Phase.VALIDATE, now=NOW, view=admission.view)
    judge = Judge(
        BUNDLE.index, ResourceKinds(BUNDLE, ()), context, operation="CREATE", user=UserInfo("alice@acme.example")
    )
    judgement = judge.judge(manifest(pod))

    assert list(judgement.patch) == admission.patch
    assert judgement.findings == decide(decode_review(review(admission.after)), BUNDLE.index, context).findings


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("apps/v1", "Deployment", "spec.template"),
        ("batch/v1", "CronJob", "spec.jobTemplate.spec.template"),
        ("ray.io/v1", "RayCluster", "spec.workerGroupSpecs[*].template"),
        ("compute.coreweave.com/v1alpha1", "NodePool", ""),
    ],
)
@given(st.data(), strategies.node_pools())
def test_check_and_the_webhook_give_the_same_findings_for_other_objects(
    api_version: str, kind: str, path: str, data: st.DataObject, pools: list[JSON]
) -> None:
    value = embedded(path, defaulted(data.draw(pods))) if path else data.draw(strategies.node_pool_named("p0"))
    default_object(api_version.rpartition("/")[0], kind, value)
    context = Context(phase=Phase.VALIDATE, now=NOW, view=cluster(pools, {}))
    judge = Judge(
        BUNDLE.index, ResourceKinds(BUNDLE, ()), context, operation="CREATE", user=UserInfo("alice@acme.example")
    )
    judged = manifest({**value, "apiVersion": api_version, "kind": kind})
    resource = judge._kinds.resource(judged)
    assert resource is not None

    findings = judge.judge(judged).findings
    body = review(judged.value, f"{resource.group}/{resource.plural}", kind=kind)
    assert findings == decide(decode_review(body), BUNDLE.index, context).findings


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("literal", [b"1e400", b"-1e999", b"9" * 400])
def test_R8_an_answer_is_valid_json_even_if_the_object_has_infinite_numbers(phase: Phase, literal: bytes) -> None:
    for field in (
        b'"spec":{"terminationGracePeriodSeconds":%b}',
        b'"metadata":{"labels":{"spotgate.dev/capacity":%b}}',
    ):
        body = review({"@": 1}).replace(b'"@": 1', field % literal)
        text = answered(body, phase, cluster([], {}))
        json.loads(text, parse_constant=pytest.fail)


def test_the_bundle_has_the_shipped_policies() -> None:
    kinds = {policy.kind.name for policy in BUNDLE.policies}
    assert kinds >= {"GracefulTermination", "OnDemandFallback", "ReservedLabels", "SpotPlacement"}
