"""The shipped webhooks that the API server would call, by their match conditions.

`tests/controlplane/calls/test_conditions.py` asks a real API server; this evaluation is faster.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from tests.builders import BUNDLE
from webhook.cel import library
from webhook.cel.library import Language
from webhook.cel.limits import Budget
from webhook.policy.match import resource_matches
from webhook.registration.configurations import configurations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cel.library import Expression

JSON = dict[str, Any]

WEBHOOKS: Final = {
    webhook["name"].removesuffix(".spotgate.dev"): webhook
    for configuration in configurations(BUNDLE, {"service": {"name": "spotgate", "namespace": "spotgate-system"}})
    for webhook in configuration["webhooks"]
}
_LANGUAGE: Final = Language()


@cache
def _compiled(text: str) -> Expression:
    with mock.patch.object(library, "LENGTH_AT_MOST", 100_000):  # for policies; the API server has no such limit
        return _LANGUAGE.compile(text, bool, {})


def called(request: JSON, namespace_labels: Mapping[str, str] | None = None) -> list[str]:
    """Return the webhooks that the API server calls for the request of an AdmissionReview.

    Raises:
        EvaluationError: a condition fails, which must never happen.
    """
    values = {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": {key: value for key, value in request.items() if value not in ("", None)},
        "request.userInfo": request["userInfo"],
        "namespaceObject": None,
        "pools": [],
    }
    ready = _LANGUAGE.values(values)
    with mock.patch.object(Budget, "spend", return_value=True):  # as above
        return [
            name
            for name, webhook in WEBHOOKS.items()
            if _matches(webhook, request, namespace_labels or {})
            and all(_compiled(item["expression"]).evaluate(ready) for item in webhook["matchConditions"])
        ]


def _matches(webhook: JSON, request: JSON, namespace_labels: Mapping[str, str]) -> bool:
    path = "/".join(filter(None, (request["resource"]["resource"], request["subResource"])))
    return any(
        request["operation"] in rule["operations"]
        and request["resource"]["group"] in rule["apiGroups"]
        and any(resource_matches(pattern, path) for pattern in rule["resources"])
        and (request["namespace"] or rule.get("scope") != "Namespaced")
        for rule in webhook["rules"]
    ) and (not request["namespace"] or _selects(webhook, request["namespace"], namespace_labels))


def _selects(webhook: JSON, namespace: str, labels: Mapping[str, str]) -> bool:
    labels = {"kubernetes.io/metadata.name": namespace, **labels}
    holds = {
        "NotIn": lambda term: labels.get(term["key"]) not in term["values"],
        "Exists": lambda term: term["key"] in labels,
        "DoesNotExist": lambda term: term["key"] not in labels,
    }
    selector = webhook.get("namespaceSelector", {"matchExpressions": []})
    return all(holds[term["operator"]](term) for term in selector["matchExpressions"])
