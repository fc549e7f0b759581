"""Ways around reserved labels: subresources that write labels, and namespaces that claim to be the platform's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.objects import BUNDLE, cks_pool, view_of
from webhook.capacity.view import ClusterView
from webhook.engine.engine import decide
from webhook.model.decision import Decision, Outcome
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request, UserInfo
from webhook.rules.context import Context, Phase

JSON = dict[str, Any]

INDEX = BUNDLE.index
CKS = view_of(cks_pool("cpu", spot=False, gpu=False))
ELSEWHERE = ClusterView(pools=(), providers=frozenset({"aks"}))
UNKNOWN = ClusterView()
RESERVED = {"foo.coreweave.com/bar": "x"}
CONTROL_PLANE = {"ns.coreweave.cloud/org": "control-plane"}


def judged(
    kind: str,
    path: str,
    value: JSON,
    old: JSON | None = None,
    *,
    view: ClusterView = CKS,
    namespace: str = "team-a",
    user: str = "jane",
    offline: bool = False,
) -> Decision:
    resource, _, subresource = path.partition("/")
    request = Request(
        uid="u",
        operation="CREATE" if old is None else "UPDATE",
        kind=GroupVersionKind("", "v1", kind),
        resource=GroupVersionResource("", "v1", resource),
        sub_resource=subresource,
        name=value["metadata"].get("name", ""),
        namespace=namespace,
        user_info=UserInfo(user),
        object=msgspec.Raw(msgspec.json.encode(value)),
        old_object=msgspec.Raw(msgspec.json.encode(old)),
    )
    now = datetime(2026, 11, 22, tzinfo=UTC)
    return decide(request, INDEX, Context(phase=Phase.VALIDATE, now=now, view=view, offline=offline))


def named(name: str = "web", **metadata: Any) -> JSON:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "a"}]}}


@pytest.mark.parametrize(
    ("kind", "path", "old"),
    [
        ("Pod", "pods/status", named()),
        ("Binding", "pods/binding", None),
        ("Binding", "bindings", None),
    ],
)
def test_a_subresource_that_writes_labels_is_judged(kind: str, path: str, old: JSON | None) -> None:
    said = judged(kind, path, named(labels=RESERVED), old)
    assert said.denied
    assert said.findings[0].field == 'metadata.labels["foo.coreweave.com/bar"]'
    assert not judged(kind, path, named(labels={"qos.coreweave.cloud/interruptable": "true"}), old).findings
    assert not judged(kind, path, named(labels={"topology.kubernetes.io/zone": "a"}), old).findings


def test_a_kubelet_that_writes_the_status_of_a_labelled_pod_changes_no_label() -> None:
    assert not judged("Pod", "pods/status", named(labels=RESERVED), named(labels=RESERVED)).findings


def test_the_annotation_of_mirror_pods_gets_nobody_past_who_is_no_node() -> None:
    mirror = {"kubernetes.io/config.mirror": "x"}
    assert judged("Binding", "pods/binding", named(labels=RESERVED, annotations=mirror)).denied
    assert judged("Pod", "pods", named(labels=RESERVED, annotations=mirror)).denied


@pytest.mark.parametrize("path", ["namespaces", "namespaces/status", "namespaces/finalize"])
def test_no_part_of_a_namespace_takes_the_label_of_the_platforms_own(path: str) -> None:
    before, after = {"metadata": {"name": "x"}}, {"metadata": {"name": "x", "labels": CONTROL_PLANE}}
    assert judged("Namespace", path, after, before, namespace="x").denied
    # Also where the cluster has it labelled so by now: the API server may have told already.
    there = msgspec.structs.replace(CKS, namespaces={"x": CONTROL_PLANE})
    assert judged("Namespace", path, after, before, namespace="x", view=there).denied


@pytest.mark.parametrize(
    ("view", "offline", "outcome"),
    [
        (CKS, False, Outcome.DENY),
        (CKS, True, Outcome.DENY),
        (ELSEWHERE, False, None),
        (UNKNOWN, False, Outcome.WARN),
        (UNKNOWN, True, Outcome.INDETERMINATE),
    ],
)
def test_a_name_is_the_platforms_only_where_that_platform_is_in_play(
    view: ClusterView, *, offline: bool, outcome: Outcome | None
) -> None:
    said = judged(
        "Namespace", "namespaces", {"metadata": {"name": "cw-x"}}, namespace="cw-x", view=view, offline=offline
    )
    assert [each.outcome for each in said.findings] == ([outcome] if outcome else [])


@pytest.mark.parametrize(
    ("view", "outcomes"),
    [(CKS, []), (ELSEWHERE, [Outcome.DENY]), (UNKNOWN, [Outcome.WARN])],
)
@pytest.mark.parametrize("namespace", ["cw-x", "labelled"])
def test_what_is_in_such_a_namespace_is_left_alone_only_there(
    view: ClusterView, outcomes: list[Outcome], namespace: str
) -> None:
    view = msgspec.structs.replace(view, namespaces={"labelled": CONTROL_PLANE})
    said = judged("Pod", "pods", named(labels=RESERVED), view=view, namespace=namespace)
    assert [each.outcome for each in said.findings] == outcomes
    assert said.unknown == (view.pools is None)
