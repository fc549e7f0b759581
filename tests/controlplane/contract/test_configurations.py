"""How the API server treats webhook configurations. Each test names the upstream case that it ports.

The entries send ConfigMaps of one namespace, which spotgate's configurations don't match, to spotgate's process, which
counts the calls.

Upstream: https://github.com/kubernetes/kubernetes/blob/v1.37.2/test/e2e/apimachinery/webhook.go (docs/webhook-contract.md)
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.harness import other_webhook
from tests.controlplane.harness.api import Api
from tests.controlplane.harness.other_webhook import denying, patching
from tests.controlplane.harness.registration import (
    ADMISSION,
    MUTATING,
    VALIDATING,
    client,
    configuration,
    entry,
    installed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

both_kinds = pytest.mark.parametrize(
    ("kind", "phase"), [(MUTATING, "mutate"), (VALIDATING, "validate")], ids=["mutating", "validating"]
)


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(cluster)


@pytest.fixture(scope="module")
def own(api: Api) -> Iterator[str]:
    """Yield a namespace for these tests."""
    with api.namespace("configurations") as name:
        yield name


@dataclass(frozen=True, slots=True)
class ConfigMaps:
    """The ConfigMaps of a namespace, and the calls that they cause."""

    webhook: Webhook
    api: Api
    namespace: str

    def calls(self, name: str = "probe") -> float:
        """Create a ConfigMap in a dry run, and return how often the API server calls spotgate."""
        before = self.webhook.count("spotgate_decisions_total", resource="configmaps")
        answer = self.api.create(
            f"/api/v1/namespaces/{self.namespace}/configmaps", {"metadata": {"name": name}}, dry_run=True
        )
        assert answer.status == 201
        return self.webhook.count("spotgate_decisions_total", resource="configmaps") - before

    def wait_for(self, calls: int) -> None:
        """Wait until the API server applies a change, and calls spotgate this often."""
        self.webhook.wait(lambda: self.calls() == calls, f"{calls} calls for one ConfigMap")


@pytest.fixture
def config_maps(webhook: Webhook, api: Api, own: str) -> ConfigMaps:
    return ConfigMaps(webhook, api, own)


# should include webhook resources in discovery documents


def test_include_webhook_resources_in_discovery_documents__the_shipped_version_is_served(api: Api) -> None:
    groups = {group["name"]: group["versions"] for group in api.get("/apis")["groups"]}
    assert "v1" in [version["version"] for version in groups["admissionregistration.k8s.io"]]
    resources = {resource["name"]: resource["kind"] for resource in api.get(ADMISSION)["resources"]}
    assert resources["mutatingwebhookconfigurations"] == "MutatingWebhookConfiguration"
    assert resources["validatingwebhookconfigurations"] == "ValidatingWebhookConfiguration"


# should not be able to mutate or prevent deletion of webhook configuration objects


def test_not_be_able_to_mutate_or_prevent_deletion_of_webhook_configuration_objects__spotgate_can_always_be_removed(
    webhook: Webhook, api: Api, own: str
) -> None:
    """Check that no webhook can block changes and deletions of spotgate's configurations."""

    def entries(to: dict[str, str]) -> list[dict[str, Any]]:
        rule = {"apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["*"]}
        rules = [rule | {"resources": ["*"]}]
        return [entry(to, own, "configmaps"), entry(to, own, "", name="configurations.example.com", rules=rules)]

    maps = f"/api/v1/namespaces/{own}/configmaps"
    with other_webhook.serve() as other:
        other.answers["/deny"] = denying
        other.answers["/change"] = patching({"op": "add", "path": "/metadata/labels", "value": {"changed": "yes"}})
        with (
            api.created(MUTATING, configuration(f"{own}-change", *entries(other.client("/change")))),
            api.created(VALIDATING, configuration(f"{own}-deny", *entries(other.client("/deny")))),
        ):
            webhook.wait(
                lambda: (
                    "denies everything" in api.create(maps, {"metadata": {"name": "denied"}}, dry_run=True).message
                    and other.seen[-1]["object"]["metadata"].get("labels") == {"changed": "yes"}
                ),
                "the other webhook changes and denies ConfigMaps",
            )
            for kind in (MUTATING, VALIDATING):
                with api.created(kind, configuration(own, entry(other.client("/"), own, "secrets"))) as stored:
                    assert "labels" not in stored["metadata"]
                assert api.send("GET", f"{kind}/{own}").status == 404
                assert api.patch(f"{kind}/spotgate", {"metadata": {"labels": {"a": "b"}}}, dry_run=True).status == 200
                assert api.delete(f"{kind}/spotgate", dry_run=True).status == 200
        assert {request["resource"]["resource"] for request in other.seen} == {"configmaps"}


# patching/updating a validating webhook should work; patching/updating a mutating webhook should work


@both_kinds
def test_patching_and_updating_a_webhook_should_work__the_last_change_applies(
    kind: str, phase: str, api: Api, own: str, config_maps: ConfigMaps
) -> None:
    with api.created(kind, configuration(own, entry(client(api, phase), own, "configmaps"))) as stored:
        config_maps.wait_for(1)
        stored["webhooks"][0]["rules"][0]["operations"] = ["UPDATE"]
        updated = api.send("PUT", f"{kind}/{own}", stored)
        assert updated.status == 200
        config_maps.wait_for(0)
        patch = [{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]
        patched = api.patch(f"{kind}/{own}", patch)
        assert patched.status == 200
        assert patched.body["metadata"]["resourceVersion"] != updated.body["metadata"]["resourceVersion"]
        config_maps.wait_for(1)
    config_maps.wait_for(0)


# listing validating webhooks should work; listing mutating webhooks should work


@both_kinds
def test_listing_webhooks_should_work__and_deletion_by_label(
    kind: str, phase: str, api: Api, own: str, config_maps: ConfigMaps
) -> None:
    size, chosen = 10, f"{kind}?labelSelector=set%3D{own}"
    with contextlib.ExitStack() as made:
        for number in range(size):
            one = configuration(f"{own}-{number}", entry(client(api, phase), own, "configmaps"), set=own)
            made.enter_context(api.created(kind, one))
        assert len(api.get(chosen)["items"]) == size
        config_maps.wait_for(size)
        assert api.delete(chosen).status == 200
        assert api.get(chosen)["items"] == []
        config_maps.wait_for(0)


# should be able to create and update validating / mutating webhook configurations with match conditions


@both_kinds
def test_create_and_update_webhook_configurations_with_match_conditions__conditions_are_stored_unchanged(
    kind: str, phase: str, api: Api, own: str
) -> None:
    one = {"name": "expression-1", "expression": "object.metadata.namespace == 'production'"}
    two = {"name": "expression-2", "expression": "object.metadata.namespace == 'staging'"}
    given = entry(client(api, phase), own, "configmaps", matchConditions=[one])
    with api.created(kind, configuration(own, given)) as stored:
        assert stored["webhooks"][0]["matchConditions"] == [one]
        stored["webhooks"][0]["matchConditions"] = [one, two]
        assert api.send("PUT", f"{kind}/{own}", stored).status == 200
        assert api.get(f"{kind}/{own}")["webhooks"][0]["matchConditions"] == [one, two]


# should reject validating / mutating webhook configurations with invalid match conditions


@both_kinds
def test_reject_webhook_configurations_with_invalid_match_conditions__the_shipped_conditions_are_valid(
    kind: str, phase: str, api: Api, own: str
) -> None:
    bad = [{"name": "invalid", "expression": "... [] bad expression"}]
    answer = api.create(kind, configuration(own, entry(client(api, phase), own, "configmaps", matchConditions=bad)))
    assert answer.status == 422
    assert "compilation failed" in answer.message
    assert all(entry["matchConditions"] for entry in installed(api))


# should mutate everything except 'skip-me' configmaps


@both_kinds
def test_mutate_everything_except_skip_me_configmaps__excluded_requests_are_not_sent(
    kind: str, phase: str, api: Api, own: str, config_maps: ConfigMaps
) -> None:
    conditions = [{"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}]
    given = entry(client(api, phase), own, "configmaps", matchConditions=conditions)
    with api.created(kind, configuration(own, given)):
        config_maps.wait_for(1)
        assert (config_maps.calls("skip-me"), config_maps.calls("another")) == (0, 1)
    config_maps.wait_for(0)
