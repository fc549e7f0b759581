"""The comparison of GitOps controllers: the webhook's fields have no manager, so a server-side apply sees no difference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import labeled, pod

if TYPE_CHECKING:
    from tests.controlplane.harness.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("webhook")

SERVER_SIDE = ("--server-side", "--field-manager=argocd-controller")
ADDED = {"f:nodeSelector", "f:tolerations", "f:lifecycle"}


def owned(value: Any) -> set[str]:
    """Return every field name in managed fields."""
    if not isinstance(value, dict):
        return set()
    return set(value) | {name for member in value.values() for name in owned(member)}


@pytest.mark.parametrize("arguments", [SERVER_SIDE, ()], ids=["server-side", "client-side"])
def test_fields_from_the_webhook_have_no_field_manager(team: Kubectl, arguments: tuple[str, ...]) -> None:
    team.apply(labeled(pod("web"), {"spotgate.dev/capacity": "spot"}), arguments=arguments)

    stored = team.get("pod", "web", "--show-managed-fields")

    assert stored["spec"]["nodeSelector"]
    for manager in stored["metadata"]["managedFields"]:
        assert not owned(manager["fieldsV1"]) & ADDED


def test_a_repeated_server_side_apply_predicts_no_change(team: Kubectl) -> None:
    thing = labeled(pod("web"), {"spotgate.dev/capacity": "spot"})
    team.apply(thing, arguments=SERVER_SIDE)
    before = team.get("pod", "web")["spec"]

    dry_run = (*SERVER_SIDE, "--dry-run=server", "--output=jsonpath={.spec}", "--filename=-")
    predicted = json.loads(team("apply", *dry_run, documents=json.dumps(thing)))

    assert predicted == before
