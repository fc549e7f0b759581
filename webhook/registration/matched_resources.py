"""Find the resources that the policies of a bundle match, and build the webhook rules for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from webhook.model.review import OPERATIONS
from webhook.policy.match import resource_matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.rules.context import Phase


@dataclass(slots=True)
class MatchedResource:
    """A resource that policies match.

    Attributes:
        direct: the policies that evaluate the object itself, by name; ``projected`` evaluate its pod templates.
        guarded: a policy allows only certain groups to write the break-glass annotation.
    """

    operations: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    direct: dict[str, Policy] = field(default_factory=dict)
    projected: dict[str, Policy] = field(default_factory=dict)
    guarded: bool = False


ResourceKey = tuple[str, str]
"""API group and resource, or resource/subresource."""
MatchedResources = dict[ResourceKey, MatchedResource]


def matched_resources(bundle: Bundle, phase: Phase) -> MatchedResources:
    """Return the resources that the policies match in this phase.

    Pod templates are only validated in their workload. They are mutated later, in the Pods created from them.
    """
    resources: MatchedResources = {}
    for operation, group, path in sorted(_named(bundle)):
        route = bundle.index.route_of(phase, operation, group, path)
        if route is None or not (route.direct or phase == "validate"):
            continue
        matched = resources.setdefault((group, path), MatchedResource())
        matched.operations.add(operation)
        rules = (rule for policy in route.direct for rule in policy.rules if rule.names(operation, group, path))
        matched.versions.update(version for rule in rules for version in rule.api_versions)
        matched.direct.update((policy.name, policy) for policy in route.direct)
        matched.projected.update((policy.name, policy) for policy in route.projected)
        matched.guarded |= bool(route.guards)
        if route.projected or not route.direct:
            matched.versions.add("*")
    return resources


def _named(bundle: Bundle) -> set[tuple[str, str, str]]:
    """Return (operation, API group, resource) of all objects that a policy may match, also by their pod templates."""
    named = {
        (operation, group, path)
        for policy in bundle.policies
        for rule in policy.rules
        for operation, group, path in product(OPERATIONS, rule.api_groups, rule.resources)
    }
    in_files = {(reader.group, reader.resource) for reader in bundle.readers if not reader.served}
    named = {(operation, group, path) for operation, group, path in named if (group, path) not in in_files}
    return named | {(operation, *key) for key in bundle.index.workloads for operation in OPERATIONS}


def as_rules(resources: Mapping[ResourceKey, MatchedResource], *, scope: str = "*") -> list[dict[str, Any]]:
    """Return the rules of a webhook for these resources.

    Resources of one group with the same operations and versions share a rule. A rule must not name both `pods/exec` and
    `pods/*`.
    """
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, path), matched in sorted(resources.items()):
        operations = tuple(operation for operation in OPERATIONS if operation in matched.operations)
        versions = ("*",) if "*" in matched.versions else tuple(sorted(matched.versions))
        alike.setdefault((group, versions, operations), []).append(path)
    return [
        {
            "apiGroups": [group],
            "apiVersions": list(versions),
            "resources": [
                path for path in paths if not any(other != path and resource_matches(other, path) for other in paths)
            ],
            "operations": list(operations),
            "scope": scope,  # write the default too: without it, `kubectl apply` reports a change
        }
        for (group, versions, operations), paths in alike.items()
    ]
