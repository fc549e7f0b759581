"""What is applied to a cluster is in step with what the program says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from webhook.bundle import OWN_NAMESPACE, SHIPPED, load_bundle
from webhook.capacity.provider import sizers_by_resource
from webhook.cli import main
from webhook.policy.document import policy_files
from webhook.server.limits import LIMITS

if TYPE_CHECKING:
    import pytest

BASE = Path(__file__).parents[1] / "manifests" / "base"


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((BASE / name).read_text()) if each]


def test_the_webhook_configurations_are_what_the_program_renders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhook-config"]) == 0
    assert capsys.readouterr().out == (BASE / "webhooks.yaml").read_text(), (
        "run `spotgate webhook-config > manifests/base/webhooks.yaml`"
    )


def test_the_configmap_holds_every_shipped_policy_file() -> None:
    kustomization = yaml.safe_load((SHIPPED / "kustomization.yaml").read_text())
    (generator,) = kustomization["configMapGenerator"]
    assert sorted(generator["files"]) == sorted(str(file.relative_to(SHIPPED)) for file in policy_files([SHIPPED]))
    (volume,) = (
        each["configMap"]["name"]
        for each in documents("deployment.yaml")[0]["spec"]["template"]["spec"]["volumes"]
        if "configMap" in each
    )
    assert volume == generator["name"]


def test_the_namespace_is_the_one_that_is_never_touched() -> None:
    (namespace,) = documents("namespace.yaml")
    assert namespace["metadata"]["name"] == OWN_NAMESPACE
    assert load_bundle().index.system_namespaces.match(OWN_NAMESPACE)


def test_the_role_reads_every_kind_of_node_pool_and_writes_nothing() -> None:
    (role,) = (each for each in documents("rbac.yaml") if each["kind"] == "ClusterRole")
    granted = {
        (group, resource) for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]
    }
    bundle = load_bundle()
    read = {*((each.group, each.resource) for each in bundle.readers), *sizers_by_resource(bundle.providers.values())}
    assert read <= granted
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


def test_the_deployment_fits_the_restricted_pod_security_standard() -> None:
    pod = documents("deployment.yaml")[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_pods_grace_period_is_longer_than_the_servers_own_stop() -> None:
    pod = documents("deployment.yaml")[0]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > LIMITS.drain + LIMITS.finish
