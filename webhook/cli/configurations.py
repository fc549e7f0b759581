"""The two webhook configurations that a bundle asks for, as objects.

Intent
    The API server calls for exactly what the policies match, and never for everything. Pods are mutated and workloads
    judged with failurePolicy Ignore: without the webhook they still start. Node pools are judged with Fail: a fallback
    that is lost can't be brought back by a later look.
Source
    https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.provider import pool_resources
from webhook.context import Phase
from webhook.globs import is_glob
from webhook.kube.pod import MIRROR_ANNOTATION
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.policy.match import resource_matches
from webhook.review import NODES, OPERATIONS, GroupVersionKind, GroupVersionResource, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.bundle import Bundle
    from webhook.index import Policy

TIMEOUT_SECONDS: Final = 3
"""Of a whole call: a webhook that hangs must not make every `kubectl apply` hang."""

JSON = dict[str, Any]

_PREFIX_GLOB: Final = re.compile(r"([a-z0-9.-]+)\*")
NO_MIRROR_PODS: Final = {
    "name": "no-mirror-pods",
    # Of Pods that nodes make alone: anybody can write the annotation.
    "expression": "request.resource.resource != 'pods' || object == null || "
    f"!has(request.userInfo.groups) || !('{NODES}' in request.userInfo.groups) || "
    "!has(object.metadata) || !has(object.metadata.annotations) || "
    f"!('{MIRROR_ANNOTATION}' in object.metadata.annotations)",
}


@dataclass(slots=True)
class _Asked:
    """What policies ask of one resource."""

    operations: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)


Resources = dict[tuple[str, str], _Asked]
"""By API group and resource or resource/subresource."""


def configurations(bundle: Bundle, client_config: JSON) -> list[JSON]:
    """The configurations; one that would hold no webhook is left out.

    Args:
        bundle: the policies.
        client_config: of every webhook; its Service gets the path.
    """
    validated = asked_of(bundle, Phase.VALIDATE)
    resources = pool_resources(bundle.providers.values())
    about_pools = {(group, each.plural) for each in resources for group in (each.group, "*")}
    pools = {key: asked for key, asked in validated.items() if (key[0], key[1].partition("/")[0]) in about_pools}
    others = {key: asked for key, asked in validated.items() if key not in pools}
    selector = without_system_namespaces(bundle)
    namespaces = list(_namespace_conditions(bundle))

    def webhook(name: str, path: str, asked: Resources, *, failure_policy: str, conditions: list[JSON]) -> list[JSON]:
        entry: JSON = {
            "name": f"{name}.spotgate.dev",
            "clientConfig": {**client_config, "service": {**client_config["service"], "path": path}},
            "rules": _rules(asked),
            "namespaceSelector": selector,
            "matchConditions": conditions,
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        }
        return [entry] if asked else []

    about_pods = [*namespaces, NO_MIRROR_PODS]
    mutating = webhook(
        "mutate", "/mutate", asked_of(bundle, Phase.MUTATE), failure_policy="Ignore", conditions=about_pods
    )
    validating = [
        *webhook("node-pools", "/validate", pools, failure_policy="Fail", conditions=namespaces),
        *webhook("workloads", "/validate", others, failure_policy="Ignore", conditions=about_pods),
    ]
    return [
        *_configuration(
            "MutatingWebhookConfiguration", [{**each, "reinvocationPolicy": "IfNeeded"} for each in mutating]
        ),
        *_configuration("ValidatingWebhookConfiguration", validating),
    ]


def namespaces_left_to_the_server(bundle: Bundle) -> list[str]:
    """System namespaces, as globs, that a configuration can't leave out: spotgate lets them pass itself."""
    globs = filter(is_glob, bundle.index.system_namespaces.patterns)
    return [glob for glob in globs if not _PREFIX_GLOB.fullmatch(glob)]


def _configuration(kind: str, webhooks: list[JSON]) -> list[JSON]:
    metadata = {"name": "spotgate", "labels": {"app.kubernetes.io/name": "spotgate"}}
    configuration: JSON = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }
    return [configuration] if webhooks else []


def asked_of(bundle: Bundle, phase: Phase) -> Resources:
    """What the policies look at in this phase; the index itself is asked.

    Pod templates are only judged where they are written: they are mutated as the Pods they become.
    """
    found: Resources = {}
    for operation, group, path in sorted(_named(bundle)):
        route = bundle.index.route(phase, _request(operation, group, path))
        if route is None or not (route.direct or phase is Phase.VALIDATE):
            continue
        asked = found.setdefault((group, path), _Asked())
        asked.operations.add(operation)
        asked.versions.update(_versions(route.direct, operation, group, path))
        if route.projected or not route.direct:
            asked.versions.add("*")
    return found


def _named(bundle: Bundle) -> set[tuple[str, str, str]]:
    """(operation, API group, resource) of everything that a policy or a pod template may be about."""
    named = {
        (operation, group, path)
        for policy in bundle.policies
        for rule in policy.rules
        for operation, group, path in product(OPERATIONS, rule.api_groups, rule.resources)
    }
    return named | {(operation, *key) for key in bundle.index.workloads for operation in OPERATIONS}


def _request(operation: str, group: str, path: str) -> Request:
    resource, _, subresource = path.partition("/")
    return Request(
        uid="",
        operation=operation,
        kind=GroupVersionKind(),
        resource=GroupVersionResource(group, "", resource),
        sub_resource=subresource,
    )


def _versions(policies: Iterable[Policy], operation: str, group: str, path: str) -> Iterator[str]:
    for policy in policies:
        for rule in policy.rules:
            if rule.names(operation, group, path):
                yield from rule.api_versions


def _rules(resources: Resources) -> list[JSON]:
    """Resources of one group that are asked alike share a rule; it must not name `pods/exec` beside `pods/*`."""
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, path), asked in sorted(resources.items()):
        operations = tuple(each for each in OPERATIONS if each in asked.operations)
        versions = ("*",) if "*" in asked.versions else tuple(sorted(asked.versions))
        alike.setdefault((group, versions, operations), []).append(path)
    return [
        {
            "apiGroups": [group],
            "apiVersions": list(versions),
            "resources": [path for path in paths if not _is_named_by_another(path, paths)],
            "operations": list(operations),
        }
        for (group, versions, operations), paths in alike.items()
    ]


def _is_named_by_another(path: str, paths: list[str]) -> bool:
    return any(other != path and resource_matches(other, path) for other in paths)


def without_system_namespaces(bundle: Bundle) -> JSON:
    """A selector of all namespaces but the system namespaces, as far as those have no globs."""
    names = dict.fromkeys(each for each in bundle.index.system_namespaces.patterns if not is_glob(each))
    return {"matchExpressions": [{"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": list(names)}]}


def _namespace_conditions(bundle: Bundle) -> Iterator[JSON]:
    """A selector knows no globs. A request for a cluster-scoped object has no namespace at all, hence ``has``."""
    prefixes = dict.fromkeys(
        found[1] for glob in bundle.index.system_namespaces.patterns if (found := _PREFIX_GLOB.fullmatch(glob))
    )
    for number, prefix in enumerate(prefixes, start=1):
        yield {
            "name": f"no-system-namespaces-{number}",
            "expression": f"!has(request.namespace) || !request.namespace.startsWith('{prefix}')",
        }
