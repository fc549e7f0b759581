"""Objects are evaluated one after another, each as in a request of the API server.

The patch of any Pod or Deployment applies to the manifest as written, and is complete.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.builders import node_pool
from webhook.capacity.view import ClusterView
from webhook.documents import read_documents
from webhook.engine.bundle import Bundle, load_bundle
from webhook.inputs.objects import Manifest
from webhook.inputs.state import view_of
from webhook.judging.judge import Judge, Judgement
from webhook.judging.kinds import ResourceKinds, UnknownTemplates
from webhook.model.review import UserInfo
from webhook.rules.context import Context, Phase

POOLS: Final = [
    node_pool(
        name,
        computeClass="spot",
        instanceType=instance_type,
        nodeTaints=[{"key": "spot", "value": "true", "effect": effect}],
    )
    for name, instance_type, effect in (
        ("gpu-spot", "gd-8xh100ib-i128", "NoExecute"),
        ("cpu-spot", "cd-gp-a192-genoa", "NoSchedule"),
    )
]
NULLABLE: Final = ("tolerations", "nodeSelector", "affinity", "terminationGracePeriodSeconds", "initContainers")


def manifest(value: dict[str, Any]) -> Manifest:
    (document,) = read_documents(json.dumps(value).encode(), "x.json")
    return Manifest(document, (), value["apiVersion"], value["kind"], value)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle()


def judge_of(
    bundle: Bundle, there: list[dict[str, Any]], operation: str = "CREATE", *, groups: tuple[str, ...] = ()
) -> Judge:
    """Return the judge of requests to a cluster with only these objects."""
    view = view_of(map(manifest, there), bundle.providers, complete=True)
    context = Context(phase=Phase.VALIDATE, now=datetime(2027, 1, 1, tzinfo=UTC), view=view)
    user = UserInfo("jane", groups)
    return Judge(
        bundle.index, ResourceKinds(bundle, ()), context, operation=operation, user=user, before=map(manifest, there)
    )


def judgement_of(bundle: Bundle, value: dict[str, Any]) -> Judgement:
    return judge_of(bundle, POOLS).judge(manifest(value))


pods = strategies.pods(
    labels={"spotgate.dev/capacity": st.sampled_from(("spot", "spot-preferred")), "app": st.just("x")},
    annotations={"spotgate.dev/node-pool": st.sampled_from(("gpu-spot", "cpu-spot", "none"))},
)


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    """Return a Pod or Deployment as users write it: with nulls, and mostly on spot."""
    pod = draw(pods)
    for field in draw(st.sets(st.sampled_from(NULLABLE))):
        pod["spec"].setdefault(field, None)
    for container in pod["spec"]["containers"]:
        if draw(st.booleans()):
            container.setdefault("lifecycle", draw(st.sampled_from((None, {"preStop": None}))))
    if draw(st.booleans()):
        return pod
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"template": template}}


@given(value=written())
def test_patch_applies_to_the_manifest_and_is_complete(bundle: Bundle, value: dict[str, Any]) -> None:
    judged = judgement_of(bundle, value)
    assert judged.problem is None
    patched = jsonpatch.apply_patch(value, list(judged.patch))
    again = judgement_of(bundle, patched)
    assert again.patch == ()
    assert again.findings == judged.findings


@given(value=written())
def test_judging_is_repeatable_and_does_not_change_the_manifest(bundle: Bundle, value: dict[str, Any]) -> None:
    before = json.dumps(value)
    assert judgement_of(bundle, value) == judgement_of(bundle, value)
    assert json.dumps(value) == before


@pytest.mark.parametrize(("api_version", "kind"), [("batch/v1", "Job"), ("v1", "ReplicationController")])
@pytest.mark.parametrize(
    ("labels", "fields"),
    [(None, ["spec.template."]), ({}, ["spec.template."]), ({"a.coreweave.cloud/b": "own"}, ["", "spec.template."])],
)
def test_a_label_copied_from_the_template_is_located_in_the_template(
    bundle: Bundle, api_version: str, kind: str, labels: dict[str, str] | None, fields: list[str]
) -> None:
    template = {
        "metadata": {"labels": {"a.coreweave.cloud/b": "x"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    metadata = {"name": "x"} if labels is None else {"name": "x", "labels": labels}
    judged = judgement_of(
        bundle, {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"template": template}}
    )
    paths = [finding.field for finding in judged.findings if finding.policy == "reserved-labels"]
    assert paths == [f'{field}metadata.labels["a.coreweave.cloud/b"]' for field in fields]


def test_a_namespace_is_its_own_namespace_as_for_the_API_server(bundle: Bundle) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    view = view_of([manifest(namespace)], bundle.providers, complete=True)
    context = Context(phase=Phase.VALIDATE, now=datetime(2027, 1, 1, tzinfo=UTC), view=view, trace=True)
    judged = Judge(bundle.index, ResourceKinds(bundle, ()), context, operation="CREATE", user=UserInfo("jane")).judge(
        manifest(namespace)
    )
    assert judged.trace is not None
    request = judged.trace.request
    assert (request.namespace, request.name, judged.namespace) == ("team-a", "team-a", "")
    labels = {"kubernetes.io/metadata.name": "team-a"}
    assert json.loads(bytes(request.object))["metadata"] == {"name": "team-a", "labels": labels}


TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app": "web", "spotgate.dev/capacity": "spot", "foo.coreweave.cloud/x": ""}},
    "spec": {
        "containers": [{"name": "app", "image": "web:1"}],
        "nodeSelector": {"compute.coreweave.com/node-pool": "x"},
    },
}
DEPLOYMENT: Final[dict[str, Any]] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"template": TEMPLATE},
}


def with_template(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Return DEPLOYMENT with these members in its template."""
    template = {"metadata": TEMPLATE["metadata"] | metadata, "spec": TEMPLATE["spec"] | spec}
    return {**DEPLOYMENT, "spec": {"replicas": 3, "template": template}}


@pytest.mark.parametrize(
    ("metadata", "spec", "unchanged"),
    [
        ({}, {}, True),
        ({"annotations": {}}, {"hostNetwork": False, "volumes": [], "dnsConfig": {"searches": []}}, True),
        ({"annotations": None}, {"tolerations": None, "restartPolicy": "Always"}, True),
        ({}, {"hostNetwork": True}, False),
        ({}, {"terminationGracePeriodSeconds": 0}, False),
        ({"labels": {**TEMPLATE["metadata"]["labels"], "empty": ""}}, {}, False),
        ({"annotations": {"empty": ""}}, {}, False),
        ({}, {"nodeSelector": {**TEMPLATE["spec"]["nodeSelector"], "empty": ""}}, False),
    ],
    ids=[
        "same",
        "empty members",
        "nulls and defaults",
        "true",
        "a zero that counts",
        "label",
        "annotation",
        "selector",
    ],
)
def test_an_update_without_a_stored_template_change_has_no_template_findings(
    bundle: Bundle, metadata: dict[str, Any], spec: dict[str, Any], *, unchanged: bool
) -> None:
    judged = judge_of(bundle, [*POOLS, DEPLOYMENT], "UPDATE").judge(manifest(with_template(metadata, spec)))
    assert judged.problem is None
    assert (judged.findings == ()) is unchanged


FALLBACK: Final = node_pool("gpu")
GPU_SPOT, CPU_SPOT = POOLS
URGENT: Final = {"metadata": {"name": "gpu", "annotations": {"spotgate.dev/break-glass": "fire"}}}


def delete_all(judge: Judge, *values: dict[str, Any]) -> list[list[str]]:
    """Return the outcomes of deleting these one after another."""
    return [[str(finding.outcome) for finding in judge.judge(manifest(value)).findings] for value in values]


@pytest.mark.parametrize(
    ("order", "outcomes"),
    [
        ([GPU_SPOT, FALLBACK], [[], []]),
        ([FALLBACK, GPU_SPOT], [["deny"], []]),
        ([FALLBACK, GPU_SPOT, FALLBACK], [["deny"], [], []]),
        ([CPU_SPOT, FALLBACK], [[], ["deny"]]),
    ],
    ids=["the pool before its fallback", "the fallback first", "then once more", "another pool"],
)
def test_deletions_of_one_run_count_for_later_ones(
    bundle: Bundle, order: list[dict[str, Any]], outcomes: list[list[str]]
) -> None:
    assert delete_all(judge_of(bundle, [*POOLS, FALLBACK], "DELETE"), *order) == outcomes


def test_a_fallback_whose_deletion_is_denied_still_counts(bundle: Bundle) -> None:
    second = {**FALLBACK, "metadata": {"name": "gpu-2"}}
    judge = judge_of(bundle, [GPU_SPOT, FALLBACK, second], "DELETE")
    assert delete_all(judge, FALLBACK, second, FALLBACK) == [[], ["deny"], []]


@pytest.mark.parametrize(
    ("written", "there", "outcome"),
    [({}, URGENT, "warn"), (URGENT, {}, "deny"), (URGENT, URGENT, "warn")],
    ids=["in the cluster", "in the file", "in both"],
)
def test_break_glass_for_a_deletion_is_read_from_the_live_object(
    bundle: Bundle, written: dict[str, Any], there: dict[str, Any], outcome: str
) -> None:
    judge = judge_of(bundle, [GPU_SPOT, FALLBACK | there], "DELETE", groups=("system:masters",))
    assert delete_all(judge, FALLBACK | written) == [[outcome]]


def test_break_glass_for_a_deletion_falls_back_to_the_file(
    bundle: Bundle,
) -> None:
    judge = judge_of(bundle, [GPU_SPOT], "DELETE", groups=("system:masters",))
    assert delete_all(judge, FALLBACK | URGENT) == [["warn"]]


# Pod templates in objects of unknown kinds

POD: Final = {"containers": [{"name": "main", "image": "example.com/app"}]}
SPOT: Final = {"metadata": {"labels": {"spotgate.dev/capacity": "spot"}}, "spec": POD}


def template_notes(bundle: Bundle, spec: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    value = {"apiVersion": "example.com/v1", "kind": "Simulation", "metadata": {"name": "x"}, "spec": spec, **more}
    findings = judgement_of(bundle, value).findings
    return [
        (item.field, item.fix.rpartition("resource: simulations, ")[2].removeprefix("templates: "))
        for item in findings
        if item.id == "object/template-unknown"
    ]


GKE_SPOT: Final = {"cloud.google.com/gke-spot": "true"}
ON_SPOT: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]}]
        }
    }
}
SELECTOR: Final = 'nodeSelector["cloud.google.com/gke-spot"]'
CAPACITY: Final = 'metadata.labels["spotgate.dev/capacity"]'


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"podTemplate": SPOT}, [(f"spec.podTemplate.{CAPACITY}", '["spec.podTemplate"]}')], id="template"),
        pytest.param(
            {"roles": {"my-role": {"groups": [{"template": SPOT}]}}},
            [(f'spec.roles["my-role"].groups[0].template.{CAPACITY}', '["spec.roles.*.groups[*].template"]}')],
            id="in maps and lists",
        ),
        pytest.param(
            {"a": {"metadata": {"labels": {"x.coreweave.com/y": "z"}}, "spec": {"nodeSelector": {"a": "b"}}}},
            [('spec.a.metadata.labels["x.coreweave.com/y"]', '["spec.a"]}')],
            id="reserved label",
        ),
        pytest.param(
            {"a": {"metadata": {"annotations": {"spotgate.dev/node-pool": "cpu-spot"}}, "spec": POD}},
            [('spec.a.metadata.annotations["spotgate.dev/node-pool"]', '["spec.a"]}')],
            id="annotation",
        ),
        pytest.param(
            {"pods": {"metadata": SPOT["metadata"], "terminationGracePeriodSeconds": 60}},
            [(f"spec.pods.{CAPACITY}", 'pods: [{path: "spec.pods", spec: ., written: []}]}')],
            id="fields of a Pod's spec next to its labels",
        ),
        pytest.param(
            {"sets": [{"nodeSelector": {"disk": "ssd", **GKE_SPOT}}]},
            [(f"spec.sets[0].{SELECTOR}", 'pods: [{path: "spec.sets[*]", spec: ., written: []}]}')],
            id="selector of spot nodes",
        ),
        pytest.param(
            {"nodeSelector": GKE_SPOT},
            [(f"spec.{SELECTOR}", 'pods: [{path: "spec", spec: ., written: []}]}')],
            id="selector in the spec",
        ),
        pytest.param(
            {"pod": {"affinity": ON_SPOT}},
            [("spec.pod.affinity", 'pods: [{path: "spec.pod", spec: ., written: []}]}')],
            id="affinity for spot nodes",
        ),
        pytest.param({"affinity": [ON_SPOT]}, [], id="affinity of another type"),
        pytest.param({"nodeSelector": {"disk": "ssd", "cloud.google.com/gke-spot": True}}, [], id="other selector"),
        pytest.param({"nodeSelector": {"matchLabels": GKE_SPOT}}, [], id="label selector"),
        pytest.param({"nodeSelector": ["cloud.google.com/gke-spot"]}, [], id="selector of another type"),
        pytest.param({"a": SPOT, "b": SPOT}, [(f"spec.a.{CAPACITY}", '["spec.a"]}')], id="once per object"),
        pytest.param({"a": {"metadata": {"labels": {"app": "web"}}, "spec": POD}}, [], id="no spotgate key"),
        pytest.param({"a": {**SPOT, "spec": {"providerID": "x"}}}, [], id="not of Pods"),
        pytest.param({"a": {"metadata": [SPOT["metadata"]], "spec": POD}, "b": 7, "c": "text"}, [], id="other types"),
    ],
)
def test_a_pod_template_in_an_object_of_an_unknown_kind_is_noted(
    spec: dict[str, Any], expected: list[tuple[str, str]], bundle: Bundle
) -> None:
    assert template_notes(bundle, spec) == expected


def test_a_pod_template_in_an_object_of_a_known_kind_is_not_noted(bundle: Bundle) -> None:
    assert template_notes(bundle, {"template": SPOT}, apiVersion="apps/v1", kind="Deployment") == []
    assert template_notes(bundle, {"cases": [SPOT]}, apiVersion="spotgate.dev/v1", kind="PolicyTest") == []


def test_the_search_for_pod_templates_is_bounded_by_aliases(bundle: Bundle) -> None:
    many: dict[str, Any] = {}
    for _ in range(40):
        many = {"a": many, "b": many}
    finding = UnknownTemplates(bundle.index, ClusterView()).finding(
        Manifest(manifest({"apiVersion": "x.y/v1", "kind": "Z"}).document, (), "x.y/v1", "Z", many), None
    )
    assert finding is None
