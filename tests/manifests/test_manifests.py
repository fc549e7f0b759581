"""The manifests match the program's own settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from webhook.capacity.providers.provider import sizers_by_resource
from webhook.commands import main
from webhook.engine.bundle import OWN_NAMESPACE, load_bundle
from webhook.rehearse.inputs.resources import KINDS
from webhook.runtime.limits import LIMITS

if TYPE_CHECKING:
    import pytest

MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = MANIFESTS / "base"


def documents(name: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all((BASE / name).read_text()) if item]


def test_the_webhook_configurations_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhook-config"]) == 0
    assert capsys.readouterr().out == (MANIFESTS / "webhooks" / "webhooks.yaml").read_text(), "run `make golden`"


def test_the_base_serves_the_policies_of_the_image_and_mounts_no_others() -> None:
    pod = documents("deployment.yaml")[0]["spec"]["template"]["spec"]
    assert [arg for arg in pod["containers"][0]["args"] if "policies" in arg] == ["--policies=shipped"]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]


def test_the_namespace_is_the_excluded_system_namespace() -> None:
    (namespace,) = documents("namespace.yaml")
    assert namespace["metadata"]["name"] == OWN_NAMESPACE
    assert load_bundle().index.system_namespaces.names.match(OWN_NAMESPACE)


def test_the_role_reads_every_kind_of_node_pool_and_writes_nothing() -> None:
    (role,) = (item for item in documents("rbac.yaml") if item["kind"] == "ClusterRole")
    granted = {
        (group, resource) for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]
    }
    bundle = load_bundle()
    served = (reader for reader in bundle.readers if reader.served)
    read = {*((reader.group, reader.resource) for reader in served), *sizers_by_resource(bundle.providers.values())}
    assert read <= granted, "let spotgate list and watch them: manifests/base/rbac.yaml"
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    (by_name,) = (rule for rule in role["rules"] if "get" in rule["verbs"])
    assert (by_name["resourceNames"], by_name["verbs"]) == (["spotgate"], ["get"])


def test_the_rehearsal_role_lists_its_inputs_and_writes_only_results() -> None:
    account, role, _, own, _ = yaml.safe_load_all((MANIFESTS / "components/rehearsal/rbac.yaml").read_text())
    listed = {
        (group, resource)
        for rule in role["rules"]
        if rule["verbs"] == ["list"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    bundle = load_bundle()
    pools = {(reader.group, reader.resource) for reader in bundle.readers if reader.served}
    sizers = set(sizers_by_resource(bundle.providers.values()))
    assert listed == {(kind.group, kind.plural) for kind in KINDS} | pools | sizers
    assert all(rule["verbs"] == ["list"] for rule in role["rules"])
    assert {verb for rule in own["rules"] for verb in rule["verbs"]} == {"create", "patch"}
    (maps,) = (rule for rule in own["rules"] if rule["resources"] == ["configmaps"])
    assert (maps["resourceNames"], maps["verbs"]) == ([account["metadata"]["name"]], ["patch"])


def test_the_controller_may_not_add_tolerations_that_providers_forbid() -> None:
    policy, _ = yaml.safe_load_all((MANIFESTS / "components/on-demand-floor/admission.yaml").read_text())
    variables = {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}
    forbidden = {taint.key for provider in load_bundle().providers.values() for taint in provider.never_tolerate}
    assert re.findall(r"'(.*?)'", variables["neverTolerated"]) == sorted(forbidden)


def test_the_certificate_must_be_for_the_service() -> None:
    (container,) = documents("deployment.yaml")[0]["spec"]["template"]["spec"]["containers"]
    (service,) = documents("service.yaml")
    assert f"--tls-name={service['metadata']['name']}.$(POD_NAMESPACE).svc" in container["args"]


def test_the_deployment_fits_the_restricted_pod_security_standard() -> None:
    pod = documents("deployment.yaml")[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_pods_grace_period_outlasts_the_servers_shutdown() -> None:
    pod = documents("deployment.yaml")[0]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > LIMITS.drain + LIMITS.finish


def test_reapplied_manifests_have_no_webhook_configuration_or_ca() -> None:
    assert not [file.name for file in BASE.glob("*.yaml") if "WebhookConfiguration" in file.read_text()]
    assert "caBundle" not in (MANIFESTS / "webhooks" / "webhooks.yaml").read_text()


def test_no_two_pods_of_a_revision_share_a_host() -> None:
    pod = documents("deployment.yaml")[0]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert (term["topologyKey"], term["matchLabelKeys"]) == ("kubernetes.io/hostname", ["pod-template-hash"])
    assert term["labelSelector"] == documents("deployment.yaml")[0]["spec"]["selector"]


def test_the_quota_is_for_the_priority_class_and_leaves_room_for_a_rollout() -> None:
    (quota,) = documents("resourcequota.yaml")
    deployment = documents("deployment.yaml")[0]["spec"]
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == [deployment["template"]["spec"]["priorityClassName"]]
    controllers = ("on-demand-floor", "reclaim-notice")
    files = [MANIFESTS / "components" / name / "deployment.yaml" for name in controllers]
    replicas = [next(yaml.safe_load_all(file.read_text()))["spec"]["replicas"] for file in files]
    # New Pods run while old ones stop. Users may add a replica.
    assert int(quota["spec"]["hard"]["pods"]) >= 2 * sum([deployment["replicas"] + 1, *replicas])


def test_the_network_policy_opens_the_pod_ports_and_limits_the_operators_port() -> None:
    (policy,) = documents("networkpolicy.yaml")
    deployment = documents("deployment.yaml")[0]["spec"]
    assert policy["spec"]["podSelector"] == deployment["selector"]
    ports = {port["name"] for port in deployment["template"]["spec"]["containers"][0]["ports"]}
    rules = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert rules.keys() == ports
    assert rules["https"] is None
    prometheus, *api_servers = rules["ops"]
    assert list(prometheus) == ["namespaceSelector"]
    for peer in api_servers:  # for the API server's Pod proxy, through which `spotgate doctor` reads the port
        assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
        assert list(peer["podSelector"]["matchLabels"].values()) == ["konnectivity-agent"]
