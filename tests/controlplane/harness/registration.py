"""Webhook configurations: those that are installed, and further ones that concern one namespace only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.controlplane.harness.webhook import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.controlplane.harness.api import Api

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{ADMISSION}/mutatingwebhookconfigurations"
VALIDATING = f"{ADMISSION}/validatingwebhookconfigurations"


def installed(api: Api) -> list[dict[str, Any]]:
    """Return the entries of all configurations that lead to spotgate."""
    entries = [
        entry
        for kind in (MUTATING, VALIDATING)
        for configuration in api.get(kind)["items"]
        for entry in configuration["webhooks"]
    ]
    return [entry for entry in entries if entry["clientConfig"].get("service", {}).get("namespace") == NAMESPACE]


def client(api: Api, phase: str) -> dict[str, Any]:
    """Return the `clientConfig` that leads to spotgate; `phase` is `mutate` or `validate`."""
    found: list[dict[str, Any]] = [entry["clientConfig"] for entry in installed(api)]
    return next(each for each in found if each["service"]["path"] == f"/{phase}")


def entry(
    client: dict[str, Any],
    namespace: str,
    resource: str,
    *,
    group: str = "",
    operations: Sequence[str] = ("CREATE",),
    **more: Any,
) -> dict[str, Any]:
    """Return an entry for one resource in one namespace; `more` is added or stands for what is here by default."""
    return {
        "name": "test.example.com",
        "clientConfig": client,
        "rules": [
            {"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": list(operations)}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def configuration(name: str, *entries: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Return a configuration of either kind. Mutating webhooks are called in the order of their configurations' names."""
    return {"metadata": {"name": name, "labels": labels}, "webhooks": entries}
