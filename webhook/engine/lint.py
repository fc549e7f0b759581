"""Warn about policies that are valid but probably wrong: unknown names, exemptions that end, rules that are too wide.

Policies with warnings are still enforced.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.globs import Globs, is_glob
from webhook.capacity.providers.provider import pool_resources
from webhook.engine.bundle import Bundle, policy_kinds
from webhook.kube.resources import (
    BUILT_IN_GROUPS,
    REMOVED_GROUPS,
    built_in_resources,
    groups_with,
    resource_named,
    versions_of,
)
from webhook.policy.common import KindGlobs
from webhook.policy.document import EXEMPTION, PolicyDocument
from webhook.policy.errors import Problem, did_you_mean
from webhook.policy.terms import Enforcement
from webhook.rules.protocol import SpecWarning, hint_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from webhook.kube.templates import Workload
    from webhook.policy.common import ExemptSpec, MatchSpec, ResourceRuleSpec

WARN_BEFORE: Final = timedelta(days=14)
"""How long before the end of an exemption spotgate starts to warn."""

_TOO_MANY: Final = {
    "": "every Event and Node, among others",
    "authentication.k8s.io": "every TokenReview",
    "authorization.k8s.io": "every SubjectAccessReview",
    "coordination.k8s.io": "every Lease",
    "discovery.k8s.io": "every EndpointSlice",
    "events.k8s.io": "every Event",
}
"""Requests that the API server would send to the webhook, by API group. The cluster depends on them."""

_ALL: Final = frozenset({"*", "*/*", "*/status"})
"""Patterns for every resource. Other subresources (``*/scale``) get few requests."""

_EVERYBODY: Final = "system:authenticated"
"""The group of all users; https://kubernetes.io/docs/reference/access-authn-authz/rbac/"""


def warnings(bundle: Bundle, today: date) -> list[Problem]:
    """Return all warnings about the policies of a bundle, sorted by file and position."""
    workloads = tuple(bundle.index.workloads.values())
    policies = [document for document in bundle.documents if document.in_force]
    problems: list[Problem] = []

    def warn(document: PolicyDocument, items: Iterable[SpecWarning]) -> None:
        problems.extend(document.problem(("spec", *path), text, warning=True) for path, text in items)

    for policy in policies:
        warn(policy, _unknown_resources(policy.spec.match))
        warn(policy, _of_shared_fields(policy, workloads))
        warn(policy, policy_kinds()[policy.kind].lint(policy.spec, workloads))
        wide = _too_wide(policy, bundle)
        warn(policy, (SpecWarning(path, f"`webhook-config` refuses the policy: {text}") for path, text in wide))
        if policy.spec.break_glass is not None:
            warn(policy, _open_break_glass(policy.spec.break_glass.groups))
        for number, entry in enumerate(policy.spec.exempt):
            warn(policy, _exemption(entry, ("exempt", number), [policy.name], today))
    for document in bundle.documents:
        if document.kind == EXEMPTION:
            names = Globs(document.spec.policies)
            exempted = [policy.name for policy in policies if names.match(policy.name)]
            warn(document, _exemption(document.spec, (), exempted, today))
    return sorted(problems)


def too_wide(bundle: Bundle) -> Iterator[Problem]:
    """Yield the rules for every resource of an API group: a webhook for all of them can stop the cluster."""
    for policy in bundle.documents:
        if policy.in_force:
            for path, text in _too_wide(policy, bundle):
                yield policy.problem(("spec", *path), text)


def _too_wide(policy: PolicyDocument, bundle: Bundle) -> Iterator[SpecWarning]:
    groups = {resource.group for resource in pool_resources(bundle.providers.values())}
    of_pools = {group: f"all of {group}, where node pools are evaluated with failurePolicy Fail" for group in groups}
    of_any = {"*": "every resource", **of_pools}
    for number, rule in enumerate(policy.spec.match.resource_rules or ()):
        for index, resource in enumerate(rule.resources):
            too_many = of_any | _TOO_MANY if resource in _ALL else of_any
            what = [too_many[group] for group in rule.api_groups if group in too_many]
            if what and resource.startswith("*"):
                text = f"with {resource!r}, the API server calls the webhook for {what[0]}; name the resources instead"
                yield SpecWarning(("match", "resourceRules", number, "resources", index), text)


def _of_shared_fields(policy: PolicyDocument, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield the warnings about kinds that are similar to a workload's kind, and about findings that can't deny."""
    spec = policy.spec
    document: Any = policy.document.value
    kinds = {f"{workload.kind}.{workload.group}".removesuffix(".") for workload in workloads}
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        for number, pattern in enumerate(value.patterns if isinstance(value, KindGlobs) else ()):
            if not is_glob(pattern) and (hint := hint_for(pattern, kinds)):
                yield SpecWarning((field.encode_name, number), f"matches no known kind{hint}")
    written: dict[str, Any] = document.get("spec") or {}
    denied = [name for name, level in written.get("findings", {}).items() if level == Enforcement.DENY]
    if denied and spec.enforcement is not Enforcement.DENY:
        why = "" if "enforcement" in written else " by default"
        lowered = f"{', '.join(denied)} can't be denied: the policy's enforcement is {spec.enforcement}{why}"
        text = f"{lowered}; set `enforcement: deny`, and `warn` for the findings that shouldn't deny"
        yield SpecWarning(("findings", denied[0]), text)


def _unknown_resources(match: MatchSpec) -> Iterator[SpecWarning]:
    """Yield API groups, resources, and versions that Kubernetes doesn't have. Skip custom ones, which may exist."""
    for name, rules in (
        ("resourceRules", match.resource_rules or ()),
        ("excludeResourceRules", match.exclude_resource_rules),
    ):
        for number, rule in enumerate(rules):
            for place, group in enumerate(rule.api_groups):
                if text := _unknown_group(group, rule.resources[0]):
                    yield SpecWarning(("match", name, number, "apiGroups", place), text)
            if BUILT_IN_GROUPS.issuperset(rule.api_groups):
                for place, resource in enumerate(rule.resources):
                    if text := _unknown_resource(rule, resource.partition("/")[0]):
                        yield SpecWarning(("match", name, number, "resources", place), text)


def _unknown_group(group: str, resource: str) -> str:
    if group in REMOVED_GROUPS:
        return f"never matches: Kubernetes no longer has API group {group}{_elsewhere(resource)}"
    if group == "*" or "." in group or group in BUILT_IN_GROUPS:  # the group of a custom resource has a dot in its name
        return ""
    return f"never matches: there is no API group {group}{did_you_mean(group, BUILT_IN_GROUPS)}"


def _unknown_resource(rule: ResourceRuleSpec, resource: str) -> str:
    groups = [group for group in rule.api_groups if resource == "*" or resource_named(group, resource)]
    if not groups:
        known = (known_resource.plural for group in rule.api_groups for known_resource in built_in_resources(group))
        where = " or ".join(group or "''" for group in rule.api_groups)
        hint = _elsewhere(resource) or did_you_mean(resource, known)
        return f"never matches: Kubernetes has no resource {resource} in API group {where}{hint}"
    served = {group: versions_of(group, resource) for group in groups}
    if "*" in rule.api_versions or any(
        not known or not known.isdisjoint(rule.api_versions) for known in served.values()
    ):
        return ""
    what = "everything" if resource == "*" else resource
    versions = " and ".join(
        f"{group or 'the core group'} serves {what} as {' and '.join(sorted(known))}" for group, known in served.items()
    )
    return f"never matches: {versions}, and this rule names {', '.join(rule.api_versions)}"


def _elsewhere(resource: str) -> str:
    """Return a hint that names the API groups with this resource, or an empty string if there are none."""
    groups = [repr(group) for group in groups_with(resource.partition("/")[0])]
    return f"; {resource} are in {' and '.join(groups)}" if groups else ""


def _open_break_glass(groups: Sequence[str]) -> Iterator[SpecWarning]:
    for number, glob in enumerate(groups):
        if Globs((glob,)).match(_EVERYBODY):
            text = "everyone can override a denial; list only the groups that need it"
            yield SpecWarning(("breakGlass", "groups", number), f"every user is in {_EVERYBODY}, so {text}")


def _exemption(
    spec: ExemptSpec, path: tuple[str | int, ...], policies: Sequence[str], today: date
) -> Iterator[SpecWarning]:
    """Yield the probable mistakes in an entry of ``exempt``, or in an Exemption document."""
    if spec.expires is not None and today > spec.expires:
        text = f"the exemption ended on {spec.expires} ({spec.reason}); remove it, or extend it"
        yield SpecWarning((*path, "expires"), text)
        return
    if spec.expires is not None and today >= spec.expires - WARN_BEFORE:
        text = f"the exemption ends on {spec.expires} ({spec.reason}); extend it, or correct the objects"
        yield SpecWarning((*path, "expires"), text)
    given = [globs for globs in (spec.users, spec.groups, spec.names) if globs]
    restricted = spec.namespaces or spec.service_accounts or spec.object_selector is not None
    if not restricted and all("*" in globs for globs in given):
        for name in policies:
            text = f"exempts everything that {name} matches; if you intend this, set `enforcement: off`"
            yield SpecWarning(path, text)
