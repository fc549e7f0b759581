"""The API server's contract with a webhook that denies. Each test names the upstream case that it ports.

Upstream: https://github.com/kubernetes/kubernetes/blob/v1.37.2/test/e2e/apimachinery/webhook.go (docs/webhook-contract.md)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import node_pool, pod_spec
from tests.controlplane.harness import other_webhook
from tests.controlplane.harness.api import NODE_POOLS, Api, pods_in
from tests.controlplane.harness.registration import VALIDATING, configuration, entry, installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESERVED = {"foo.coreweave.cloud/bar": "x"}


def a_pod(labels: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "labels": labels or {}, **metadata}, "spec": pod_spec(schedulerName="nobody")}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(cluster)


@pytest.fixture(scope="module")
def own(api: Api) -> Iterator[str]:
    """Yield a namespace for these tests."""
    with api.namespace("denial") as name:
        yield name


# should be able to deny pod and configmap creation


def test_deny_pod_and_configmap_creation__the_request_is_forbidden_and_stores_nothing(api: Api, own: str) -> None:
    answer = api.create(pods_in(own), a_pod(RESERVED))
    assert (answer.status, answer.body["reason"], answer.body["code"]) == (403, "Forbidden", 403)
    assert answer.message.startswith(
        'admission webhook "workloads.spotgate.dev" denied the request: [reserved-labels] label foo.coreweave.cloud/bar '
        "is in the reserved domain coreweave.cloud"
    )
    assert api.send("GET", f"{pods_in(own)}/web").status == 404


@pytest.mark.parametrize("how", ["update", "JSON patch", "merge patch", "server-side apply"])
def test_deny_pod_and_configmap_creation__an_update_cannot_add_a_denied_label(how: str, api: Api, own: str) -> None:
    with api.created(pods_in(own), a_pod()) as stored:
        path, labelled = f"{pods_in(own)}/web", {"metadata": {"labels": RESERVED}}
        if how == "update":
            answer = api.send("PUT", path, stored | {"metadata": stored["metadata"] | {"labels": RESERVED}})
        elif how == "JSON patch":
            answer = api.patch(path, [{"op": "add", "path": "/metadata/labels", "value": RESERVED}])
        elif how == "merge patch":
            answer = api.patch(path, labelled)
        else:
            intent = {"apiVersion": "v1", "kind": "Pod"} | labelled
            answer = api.send("PATCH", f"{path}?fieldManager=alice", intent, content="application/apply-patch+yaml")
        assert answer.status == 403
        assert "[reserved-labels]" in answer.message
        assert api.get(path)["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


def test_deny_pod_and_configmap_creation__an_excluded_namespace_is_skipped(api: Api) -> None:
    with (
        api.namespace("denial", {"ns.coreweave.cloud/org": "control-plane"}) as excluded,
        api.created(pods_in(excluded), a_pod(RESERVED)) as stored,
    ):
        assert stored["metadata"]["labels"] == RESERVED


def test_deny_pod_and_configmap_creation__another_webhook_that_fails_open_changes_nothing(
    webhook: Webhook, api: Api, own: str
) -> None:
    with other_webhook.serve() as other:
        failing = entry(other.client("/fails"), own, "pods", failurePolicy="Ignore")
        with api.created(VALIDATING, configuration(f"a-{own}", failing)):
            webhook.wait(
                lambda: api.create(pods_in(own), a_pod(), dry_run=True).status == 201 and other.seen,
                "a Pod is created despite a webhook that fails open",
            )
            assert api.create(pods_in(own), a_pod(RESERVED)).status == 403


# should be able to deny custom resource creation, update and deletion


def test_deny_custom_resource_creation_update_and_deletion__node_pools_are_unchanged(api: Api) -> None:
    before = {pool["metadata"]["name"]: pool["spec"] for pool in api.get(NODE_POOLS)["items"]}
    superchip = node_pool("denied", computeClass="spot", instanceType="gb200-4x")
    answers = {
        "create": api.create(NODE_POOLS, superchip),
        "update": api.patch(f"{NODE_POOLS}/h100", {"spec": {"computeClass": "spot"}}),
        "scale": api.patch(f"{NODE_POOLS}/h100/scale", {"spec": {"replicas": 0}}),
        "delete": api.delete(f"{NODE_POOLS}/h100"),
    }
    assert {how: answer.status for how, answer in answers.items()} == dict.fromkeys(answers, 403)
    # Two webhooks deny an update of the spec, and the API server returns the answer that arrives first.
    by = re.compile(
        r'admission webhook "node-pool(s|-updates)\.spotgate\.dev" denied the request: \[on-demand-fallback\]'
    )
    assert [how for how, answer in answers.items() if not by.match(answer.message)] == []
    assert {pool["metadata"]["name"]: pool["spec"] for pool in api.get(NODE_POOLS)["items"]} == before


# should be able to deny attaching pod; should deny crd creation


def test_deny_attaching_pod__a_webhook_can_deny_and_spotgate_is_not_called(
    webhook: Webhook, api: Api, own: str
) -> None:
    with other_webhook.serve() as other, api.created(pods_in(own), a_pod()):
        other.answers["/deny"] = other_webhook.denying
        connect = entry(other.client("/deny"), own, "pods/attach", operations=["CONNECT"])
        with api.created(VALIDATING, configuration(f"a-{own}", connect)):
            webhook.wait(
                lambda: "the other webhook denies everything" in api.create(f"{pods_in(own)}/web/attach", {}).message,
                "attaching is denied",
            )
    assert other.seen[0]["operation"] == "CONNECT"
    assert webhook.count("spotgate_decisions_total", resource="pods/attach") == 0


def test_deny_crd_creation__spotgate_is_called_only_for_declared_resources(webhook: Webhook, api: Api) -> None:
    crd = api.get(f"{CRDS}/rayclusters.ray.io")
    names = {"kind": "Attachment", "singular": "attachment", "plural": "attachments"}
    copy = {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": "attachments.ray.io", "labels": RESERVED},
        "spec": crd["spec"] | {"names": names},
    }
    assert api.create(CRDS, copy, dry_run=True).status == 201
    assert webhook.count("spotgate_decisions_total", resource="customresourcedefinitions") == 0
    operations = {operation for one in installed(api) for rule in one["rules"] for operation in rule["operations"]}
    assert operations == {"CREATE", "UPDATE", "DELETE"}


# Beyond the upstream suite: dry runs and generated names


def test_a_dry_run_gets_the_verdict_of_the_real_request_and_stores_nothing(api: Api, own: str) -> None:
    asking = a_pod({"spotgate.dev/capacity": "spot"})
    tried, refused = (
        api.create(pods_in(own), asking, dry_run=True),
        api.create(pods_in(own), a_pod(RESERVED), dry_run=True),
    )
    assert api.send("GET", f"{pods_in(own)}/web").status == 404
    with api.created(pods_in(own), asking) as stored:
        for key in ("nodeSelector", "terminationGracePeriodSeconds", "tolerations"):
            assert tried.body["spec"][key] == stored["spec"][key]
    assert stored["spec"]["nodeSelector"]
    assert refused.message == api.create(pods_in(own), a_pod(RESERVED)).message


def test_an_object_with_a_generated_name_is_mutated_and_denied_like_any_other(api: Api, own: str) -> None:
    asking = {**a_pod({"spotgate.dev/capacity": "spot"}), "metadata": {"generateName": "web-", "labels": {}}}
    asking["metadata"]["labels"] = {"spotgate.dev/capacity": "spot"}
    made = api.create(pods_in(own), asking, dry_run=True)
    assert made.name.startswith("web-")
    assert made.body["spec"]["nodeSelector"]
    asking["metadata"]["labels"] |= RESERVED
    refused = api.create(pods_in(own), asking)
    assert refused.status == 403
    assert "label foo.coreweave.cloud/bar" in refused.message
