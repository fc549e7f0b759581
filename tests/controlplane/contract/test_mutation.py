"""The API server's contract with a webhook that mutates, alone or with others. Each test names the upstream case.

Upstream: https://github.com/kubernetes/kubernetes/blob/v1.37.2/test/e2e/apimachinery/webhook.go (docs/webhook-contract.md)
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import node_pool, pod_spec
from tests.controlplane.harness import other_webhook
from tests.controlplane.harness.api import NODE_POOLS, Api, pods_in
from tests.controlplane.harness.other_webhook import patching
from tests.controlplane.harness.registration import MUTATING, configuration, entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.other_webhook import OtherWebhook
    from tests.controlplane.harness.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io"
SPOT = {"spotgate.dev/capacity": "spot"}
RESERVED = {"foo.coreweave.cloud/bar": "x"}
SIDECAR = {"name": "proxy", "image": "registry.example.com/proxy:1"}
SLEEP = {"preStop": {"sleep": {"seconds": 5}}}


def a_pod(labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "web", "labels": labels or {}}, "spec": pod_spec(schedulerName="nobody")}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(cluster)


@pytest.fixture(scope="module")
def own(api: Api) -> Iterator[str]:
    """Yield a namespace for these tests."""
    with api.namespace("mutation") as name:
        yield name


@pytest.fixture
def other() -> Iterator[OtherWebhook]:
    with other_webhook.serve() as webhook:
        yield webhook


class Outcomes:
    """The counts of spotgate's decisions about Pods since its construction."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        self.before = self._now()

    def _now(self) -> dict[str, float]:
        name, labels = "spotgate_decisions_total", {"phase": "mutate", "resource": "pods"}
        return {kind: self.webhook.count(name, outcome=kind, **labels) for kind in ("allowed", "patched", "warned")}

    def since(self) -> dict[str, float]:
        return {key: value - self.before[key] for key, value in self._now().items() if value != self.before[key]}


# should mutate pod and apply defaults after mutation


def test_mutate_pod_and_apply_defaults_after_mutation__injected_fields_and_defaults_are_stored(
    api: Api, own: str
) -> None:
    with api.created(pods_in(own), a_pod(SPOT)) as stored:
        spec, (container,) = stored["spec"], stored["spec"]["containers"]
        assert api.get(f"{pods_in(own)}/web")["spec"] == spec
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["nodeSelector"] == {"compute.coreweave.com/node-pool": "cpu-spot"}
    assert [toleration["key"] for toleration in spec["tolerations"][-2:]] == [
        "example.com/spot",
        "qos.coreweave.cloud/interruptable",
    ]
    assert container["lifecycle"] == SLEEP
    assert (container["terminationMessagePolicy"], spec["dnsPolicy"]) == ("File", "ClusterFirst")


# should mutate configmap (two webhooks, in order)


@contextlib.contextmanager
def with_other_webhook(spotgate: Webhook, other: OtherWebhook, own: str, *, name: str) -> Iterator[None]:
    """Have the other webhook change Pods too: before spotgate with `name` a, and after it with z."""
    api, entries = Api(spotgate.cluster), entry(other.client("/"), own, "pods")
    with api.created(MUTATING, configuration(f"{name}-{own}", entries)):
        spotgate.wait(lambda: api.create(pods_in(own), a_pod(), dry_run=True).status and other.seen, "it is called")
        yield


def test_mutate_configmap__spotgate_acts_on_the_changes_of_an_earlier_webhook(
    webhook: Webhook, api: Api, own: str, other: OtherWebhook
) -> None:
    """Upstream adds a key that depends on an earlier webhook's; here the earlier webhook adds the spot label."""
    other.answers["/"] = patching({"op": "add", "path": "/metadata/labels", "value": SPOT})
    with with_other_webhook(webhook, other, own, name="a"):
        outcomes = Outcomes(webhook)
        made = api.create(pods_in(own), a_pod(), dry_run=True).body
    assert outcomes.since() == {"patched": 1}
    assert made["spec"]["nodeSelector"] == {"compute.coreweave.com/node-pool": "cpu-spot"}


def test_mutate_configmap__reinvoked_spotgate_acts_on_the_changes_of_a_later_webhook(
    webhook: Webhook, api: Api, own: str, other: OtherWebhook
) -> None:
    other.answers["/"] = patching({"op": "add", "path": "/spec/containers/-", "value": SIDECAR})
    with with_other_webhook(webhook, other, own, name="z"):
        outcomes = Outcomes(webhook)
        made = api.create(pods_in(own), a_pod(SPOT), dry_run=True).body
    assert outcomes.since() == {"patched": 2}
    assert other.seen[-1]["object"]["spec"]["terminationGracePeriodSeconds"] == 60, "the later one sees what we did"
    (main, proxy) = made["spec"]["containers"]
    assert (main["lifecycle"], proxy["lifecycle"]) == (SLEEP, SLEEP)
    assert proxy["terminationMessagePolicy"] == "File"


def test_mutate_configmap__reinvoked_spotgate_repeats_nothing(
    webhook: Webhook, api: Api, own: str, other: OtherWebhook
) -> None:
    alone = api.create(pods_in(own), a_pod(SPOT), dry_run=True).body
    other.answers["/"] = patching({"op": "add", "path": "/spec/hostname", "value": "web"})
    with with_other_webhook(webhook, other, own, name="z"):
        outcomes = Outcomes(webhook)
        made = api.create(pods_in(own), a_pod(SPOT), dry_run=True).body
        assert outcomes.since() == {"patched": 1, "allowed": 1}
        unplaceable = a_pod() | {"metadata": {"name": "web", "annotations": {"spotgate.dev/node-pool": "nowhere"}}}
        warned = api.create(pods_in(own), unplaceable, dry_run=True)
    assert without_token(made["spec"]) == without_token(alone["spec"] | {"hostname": "web"})
    assert warned.warnings[0].startswith("[spot-placement] there is no node pool `nowhere` (at metadata.annotations[")
    assert len(set(warned.warnings)) == len(warned.warnings), "a warning is shown once"


def without_token(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec without the token volume, which has a random name."""
    return {**spec, "volumes": None, "containers": [{**item, "volumeMounts": None} for item in spec["containers"]]}


# should mutate custom resource


def test_mutate_custom_resource__spotgate_judges_the_object_after_other_webhooks(
    webhook: Webhook, api: Api, own: str, other: OtherWebhook
) -> None:
    """Spotgate mutates no custom resource; it evaluates the object that the API server would store."""
    other.answers["/"] = patching({"op": "add", "path": "/spec/computeClass", "value": "spot"})
    name = f"{own}-gold"
    only = [{"name": "own", "expression": f"object.metadata.name == '{name}'"}]
    mutator = entry(other.client("/"), own, "nodepools", group="compute.coreweave.com", matchConditions=only)
    pool = node_pool(name, instanceType="gb200-4x")
    assert api.create(NODE_POOLS, pool, dry_run=True).body["spec"] == pool["spec"]
    with api.created(MUTATING, configuration(f"a-{own}", mutator)):
        webhook.wait(lambda: api.create(NODE_POOLS, pool, dry_run=True).status == 403, "the pool is denied")
        answer = api.create(NODE_POOLS, pool)
    assert f"NodePool {name} can't be spot: gb200-4x is available only on demand" in answer.message


# should mutate custom resource with different stored version


def test_mutate_custom_resource_with_different_stored_version__every_version_is_judged(
    webhook: Webhook, api: Api, own: str
) -> None:
    clusters = f"/apis/ray.io/{{}}/namespaces/{own}/rayclusters"
    template = {"metadata": {"labels": {}}, "spec": pod_spec()}
    ray = {"metadata": {"name": "ray"}, "spec": {"headGroupSpec": {"template": template}}}
    bad = {"spec": {"headGroupSpec": {"template": {"metadata": {"labels": RESERVED}}}}}
    (v1,) = api.get(CRD)["spec"]["versions"]
    alpha = v1 | {"name": "v1alpha1"}
    try:
        # Delete it while its version is served: otherwise the API server can neither read it nor delete its namespace.
        with api.created(clusters.format("v1"), {"apiVersion": "ray.io/v1", "kind": "RayCluster", **ray}):
            api.patch(CRD, {"spec": {"versions": [v1 | {"storage": False}, alpha]}})
            for version in ("v1", "v1alpha1"):
                one = f"{clusters.format(version)}/ray"
                webhook.wait(partial(is_served, api, one), f"{one} is served")
                assert api.patch(one, bad).status == 403, version
                assert api.patch(one, {"spec": {"stored": version}}).status == 200, version
                stored = api.get(one)["spec"]
                assert stored["stored"] == version
                assert not stored["headGroupSpec"]["template"]["metadata"]["labels"]
    finally:
        api.patch(CRD, {"spec": {"versions": [v1, alpha | {"storage": False}]}})
        api.patch(f"{CRD}/status", {"status": {"storedVersions": ["v1"]}})
        api.patch(CRD, {"spec": {"versions": [v1]}})
    assert api.get(CRD)["spec"]["versions"] == [v1]


def is_served(api: Api, path: str) -> bool:
    return api.send("GET", path).status == 200


# should mutate custom resource with pruning


def test_mutate_custom_resource_with_pruning__no_injected_field_is_pruned(webhook: Webhook, api: Api, own: str) -> None:
    """Send the stored Pod again: if the API server had dropped a field, spotgate would inject it again."""
    stored = api.create(pods_in(own), a_pod(SPOT), dry_run=True).body
    outcomes = Outcomes(webhook)
    again = api.create(pods_in(own), {"metadata": a_pod(SPOT)["metadata"], "spec": stored["spec"]}, dry_run=True)
    assert outcomes.since() == {"allowed": 1}
    assert again.body["spec"] == stored["spec"]


# Beyond the upstream suite


def test_a_label_from_another_webhook_is_judged_before_it_is_stored(
    webhook: Webhook, api: Api, own: str, other: OtherWebhook
) -> None:
    other.answers["/"] = patching({"op": "add", "path": "/metadata/labels", "value": RESERVED})
    with with_other_webhook(webhook, other, own, name="z"):
        assert "label foo.coreweave.cloud/bar" in api.create(pods_in(own), a_pod()).message
