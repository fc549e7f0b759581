"""The webhook configurations match what may concern a policy, and can't stop a cluster."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from certs.authority import create_authority
from tests.builders import BUNDLE
from webhook.engine.bundle import SHIPPED
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


RENDERED = SHIPPED.parent / "manifests" / "webhooks" / "webhooks.yaml"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def webhooks(text: str) -> dict[str, dict[str, Any]]:
    """Return the webhooks of the printed configurations by name."""
    configurations = yaml.load_all(text, yaml.CSafeLoader)
    return {webhook["name"]: webhook for configuration in configurations for webhook in configuration["webhooks"]}


def rules(webhook: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return the operation, group, and resource of each rule."""
    return {
        (operation, group, resource)
        for rule in webhook["rules"]
        for operation in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.fixture(scope="module")
def shipped() -> dict[str, dict[str, Any]]:
    """Return the output for the shipped policies; tests/manifests/test_manifests.py compares it with the file."""
    text = RENDERED.read_text()
    kinds = [(item["apiVersion"], item["kind"]) for item in yaml.load_all(text, yaml.CSafeLoader)]
    assert kinds == [("admissionregistration.k8s.io/v1", kind) for kind in (MUTATING, VALIDATING)]
    return webhooks(text)


def test_only_requests_that_remove_a_fallback_fail_closed(shipped: dict[str, Any]) -> None:
    assert {
        name: (hook["failurePolicy"], hook["clientConfig"]["service"]["path"]) for name, hook in shipped.items()
    } == {
        "mutate.spotgate.dev": ("Ignore", "/mutate"),
        "mutate-spot-namespaces.spotgate.dev": ("Ignore", "/mutate"),
        "node-pools.spotgate.dev": ("Fail", "/validate"),
        "node-pool-updates.spotgate.dev": ("Ignore", "/validate"),
        "namespaces.spotgate.dev": ("Ignore", "/validate"),
        "workloads.spotgate.dev": ("Ignore", "/validate"),
        "spot-namespaces.spotgate.dev": ("Ignore", "/validate"),
    }


def test_G_webhooks_are_quick_without_side_effects_and_match_equivalent(shipped: dict[str, Any]) -> None:
    for webhook in shipped.values():
        assert 1 <= webhook["timeoutSeconds"] <= 3
        assert webhook["sideEffects"] == "None"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["admissionReviewVersions"] == ["v1"]


def test_M4_only_pods_are_mutated_and_only_on_create(shipped: dict[str, Any]) -> None:
    mutate = shipped["mutate.spotgate.dev"]
    assert rules(mutate) == {("CREATE", "", "pods")}
    assert mutate["reinvocationPolicy"] == "IfNeeded"


def test_validating_webhooks_share_no_resource(shipped: dict[str, Any]) -> None:
    pools, workloads = (
        {(group, resource) for _, group, resource in rules(shipped[name])}
        for name in ("node-pools.spotgate.dev", "workloads.spotgate.dev")
    )
    assert not pools & workloads
    assert {("compute.coreweave.com", "nodepools"), ("compute.coreweave.com", "nodepools/scale")} <= pools
    assert {("", "pods"), ("apps", "deployments"), ("ray.io", "rayclusters")} <= workloads


def test_scaling_a_pool_is_not_a_bypass(shipped: dict[str, Any]) -> None:
    assert ("UPDATE", "compute.coreweave.com", "nodepools/scale") in rules(shipped["node-pools.spotgate.dev"])


def test_I10_every_rule_matches_requests_that_a_policy_evaluates(shipped: dict[str, Any]) -> None:
    index = BUNDLE.index
    for name, webhook in shipped.items():
        for operation, group, path in rules(webhook):
            resource, _, subresource = path.partition("/")
            request = Request(
                uid="u",
                operation=operation,
                kind=GroupVersionKind(),
                resource=GroupVersionResource(group, "v1", resource),
                sub_resource=subresource,
            )
            phase = Phase.MUTATE if name.startswith("mutate") else Phase.VALIDATE
            assert index.route(phase, request) is not None


def test_no_rule_matches_everything_or_resources_that_keep_a_cluster_alive(shipped: dict[str, Any]) -> None:
    resources = {(group, resource) for webhook in shipped.values() for _, group, resource in rules(webhook)}
    assert not [resource for resource in resources if "*" in "".join(resource)]
    assert not resources & {("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events")}


def test_G_system_namespaces_are_excluded_and_provider_namespaces_are_not(run: Run) -> None:
    essential = ["kube-system", "kube-node-lease", "platform"]
    by_name = webhooks(run("webhook-config", "--namespace", "platform").out)
    namespaces = by_name.pop("namespaces.spotgate.dev")
    assert "namespaceSelector" not in namespaces  # a selector would depend on Namespace labels, which users can set
    assert str(essential) in namespaces["matchConditions"][0]["expression"]
    for webhook in by_name.values():
        selector = {item["key"]: item for item in webhook["namespaceSelector"]["matchExpressions"]}
        assert selector.pop("kubernetes.io/metadata.name") == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": essential,
        }
        assert selector.keys() <= {"spotgate.dev/capacity"}
        assert not any("cw-" in item["expression"] for item in webhook["matchConditions"])


def test_every_namespace_matches_one_webhook_of_each_phase(shipped: dict[str, Any]) -> None:
    for one, other in (("mutate", "mutate-spot-namespaces"), ("workloads", "spot-namespaces")):
        pair = [shipped[f"{name}.spotgate.dev"] for name in (one, other)]
        (key,) = {(webhook["namespaceSelector"]["matchExpressions"][1]["key"]) for webhook in pair}
        operators = [webhook["namespaceSelector"]["matchExpressions"][1]["operator"] for webhook in pair]
        assert (key, operators) == ("spotgate.dev/capacity", ["DoesNotExist", "Exists"])
        # Both select cluster-scoped objects.
        assert {rule.get("scope", "*") for rule in pair[0]["rules"]} == {"*"}
        assert {rule["scope"] for rule in pair[1]["rules"]} == {"Namespaced"}


def test_the_configurations_fit_into_an_annotation_of_kubectl(run: Run) -> None:
    assert len(run("webhook-config").out) < 256 * 1024 / 3


def test_G_mirror_pods_are_excluded_where_objects_may_be_pods(shipped: dict[str, Any]) -> None:
    conditions = {name: {item["name"] for item in webhook["matchConditions"]} for name, webhook in shipped.items()}
    assert {name for name, names in conditions.items() if "no-mirror-pods" in names} == {
        "mutate.spotgate.dev",
        "mutate-spot-namespaces.spotgate.dev",
        "workloads.spotgate.dev",
        "spot-namespaces.spotgate.dev",
    }


def test_the_named_service_is_used(run: Run) -> None:
    printed = webhooks(run("webhook-config", "--service-name", "gate", "--namespace", "platform").out)
    services = [webhook["clientConfig"]["service"] for webhook in printed.values()]
    assert {(item["name"], item["namespace"], item["port"]) for item in services} == {("gate", "platform", 443)}
    assert not any("caBundle" in webhook["clientConfig"] for webhook in printed.values())


def test_ca_bundle_holds_the_certificates_of_the_file_but_no_key(run: Run, write: Write) -> None:
    authority = create_authority(datetime.now(tz=UTC))
    file = write("ca.pem", authority.key_pem + authority.certificate_pem + authority.certificate_pem)
    for webhook in webhooks(run("webhook-config", "--ca-file", file).out).values():
        bundle = base64.b64decode(webhook["clientConfig"]["caBundle"])
        assert bundle == authority.certificate_pem * 2


def test_a_key_is_not_accepted_as_a_ca_file(run: Run, write: Write) -> None:
    done = run("webhook-config", "--ca-file", write("ca.pem", create_authority(datetime.now(tz=UTC)).key_pem))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("ca.pem: contains no valid certificate")


def test_a_configuration_for_the_ca_alone_matches_nothing(run: Run, write: Write) -> None:
    authority = create_authority(datetime.now(tz=UTC))
    done = run("webhook-config", "--ca-only", "--ca-file", write("ca.pem", authority.certificate_pem))
    printed, rendered = webhooks(done.out), webhooks(run("webhook-config").out)
    assert list(printed) == list(rendered)
    for name, webhook in printed.items():
        assert set(webhook) == {"name", "clientConfig", "sideEffects", "admissionReviewVersions"}
        assert webhook["clientConfig"].pop("caBundle")
        assert webhook.items() <= rendered[name].items()


def test_without_a_ca_file_replicas_can_publish_their_own_ca(run: Run) -> None:
    for webhook in webhooks(run("webhook-config", "--ca-only").out).values():
        assert set(webhook) == {"name", "clientConfig", "sideEffects", "admissionReviewVersions"}
        assert set(webhook["clientConfig"]) == {"service"}


POLICY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec:
  domains: [example.com]
  match:
    resourceRules:
"""


@pytest.mark.parametrize(
    ("rule", "rendered"),
    [
        (
            '{apiGroups: ["*"], resources: [nodepools, widgets], operations: ["*"], apiVersions: [v2, v1]}',
            {
                "node-pools": [("*", ["v1", "v2"], "nodepools", "CREATE UPDATE DELETE CONNECT")],
                "workloads": [("*", ["v1", "v2"], "widgets", "CREATE UPDATE DELETE CONNECT")],
            },
        ),
        (
            '{apiGroups: [""], resources: [pods, pods/*], operations: [UPDATE]}',
            {"workloads": [("", ["*"], "pods/*", "UPDATE")]},
        ),
        (
            """{apiGroups: [apps, batch], resources: ["*"], operations: [UPDATE]}
      - {apiGroups: [apps], resources: [controllerrevisions, deployments/scale], operations: [UPDATE]}
      - {apiGroups: [batch], resources: ["*/*"], operations: [UPDATE]}""",
            {
                "workloads": [
                    ("apps", ["*"], "*", "UPDATE"),
                    ("apps", ["*"], "deployments/scale", "UPDATE"),
                    ("batch", ["*"], "*/*", "UPDATE"),
                ]
            },
        ),
        (
            """{apiGroups: [""], resources: [pods/*], operations: [UPDATE]}
      - {apiGroups: [""], resources: [pods/resize], operations: [UPDATE]}""",
            {"workloads": [("", ["*"], "pods/*", "UPDATE")]},
        ),
    ],
)
def test_wildcards_of_groups_operations_and_subresources_stay_separate(
    run: Run, write: Write, rule: str, rendered: dict[str, list[Any]]
) -> None:
    printed = webhooks(run("webhook-config", "--policies", write("policy.yaml", f"{POLICY}      - {rule}\n")).out)
    asked = {
        name.removesuffix(".spotgate.dev"): [
            (group, rule["apiVersions"], resource, " ".join(rule["operations"]))
            for rule in webhook["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        ]
        for name, webhook in printed.items()
    }
    assert asked == rendered
