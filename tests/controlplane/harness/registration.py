"""The installed webhook configurations, and additional ones that apply to a single namespace."""

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
    """Return all webhook entries that call spotgate."""
    entries = [
        entry
        for kind in (MUTATING, VALIDATING)
        for configuration in api.get(kind)["items"]
        for entry in configuration["webhooks"]
    ]
    return [entry for entry in entries if entry["clientConfig"].get("service", {}).get("namespace") == NAMESPACE]


def client(api: Api, phase: str) -> dict[str, Any]:
    """Return the `clientConfig` of spotgate; `phase` is `mutate` or `validate`."""
    clients: list[dict[str, Any]] = [entry["clientConfig"] for entry in installed(api)]
    return next(config for config in clients if config["service"]["path"] == f"/{phase}")


def entry(
    client: dict[str, Any],
    namespace: str,
    resource: str,
    *,
    group: str = "",
    operations: Sequence[str] = ("CREATE",),
    **more: Any,
) -> dict[str, Any]:
    """Return an entry for one resource in one namespace; `more` adds fields or overrides the defaults."""
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
    """Return a configuration of either kind. The API server calls mutating webhooks in the order of configuration names."""
    return {"metadata": {"name": name, "labels": labels}, "webhooks": entries}
