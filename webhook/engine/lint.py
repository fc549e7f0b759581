"""Warn of policies that are valid and probably mistaken: unknown names, exemptions that end, rules too wide.

Policies with warnings are enforced all the same.
"""

from __future__ import annotations

import string
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from webhook.base.globs import Globs, is_glob
from webhook.capacity.placement.workload_class import BATCH, CHECKPOINTING, QUEUE_WORKER, STATELESS
from webhook.capacity.providers.provider import pool_resources
from webhook.kube.resources import (
    BUILT_IN_GROUPS,
    GONE,
    built_in_resources,
    groups_with,
    is_built_in,
    resource_named,
    versions_of,
)
from webhook.policy.document import EXEMPTION
from webhook.policy.errors import did_you_mean
from webhook.policy.match import is_named
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import date

    from webhook.engine.bundle import Bundle
    from webhook.kube.templates import Workload
    from webhook.policy.common import ExemptSpec, MatchSpec, ResourceRuleSpec
    from webhook.policy.document import PolicyDocument
    from webhook.policy.errors import Problem

WARN_BEFORE: Final = timedelta(days=14)
"""The time before the end of an exemption in which spotgate warns of it."""

_TOO_MANY: Final = {
    "": "every Event and Node, among others",
    "authentication.k8s.io": "every token that is looked at",
    "authorization.k8s.io": "every access that is looked at",
    "coordination.k8s.io": "every Lease",
    "discovery.k8s.io": "every EndpointSlice",
    "events.k8s.io": "every Event",
}
"""Requests that the API server would send to the webhook, by API group. The cluster depends on these."""

_ALL: Final = frozenset({"*", "*/*", "*/status"})
"""Patterns for every resource. Other subresources (``*/scale``) have few requests."""

_RESERVED_LABELS: Final = "ReservedLabels"
_PODS: Final = ("", "pods")

_EVERYBODY: Final = "system:authenticated"
"""The group of all users; https://kubernetes.io/docs/reference/access-authn-authz/rbac/"""

_KINDS: Final = {
    "distributed": "distributed",
    "replicated": "replicated",
    "stateful": "stateful",
    "training_operators": "trainingOperators",
}
"""Fields of policies that list kinds as ``Kind.group``, and how they are written."""

_CLASSES: Final = (BATCH, CHECKPOINTING, QUEUE_WORKER, STATELESS)

_MISSPELT: Final = 0.9
"""The least similarity of a misspelt name to the right one: ``statless``, ``PyTorchJob.kubeflow.com``."""


class _Warning(NamedTuple):
    """A probable mistake.

    Attributes:
        path: the field below ``spec``.
        text: the mistake and its correction.
    """

    path: tuple[str | int, ...]
    text: str


def warnings(bundle: Bundle, today: date) -> list[Problem]:
    """Return all warnings about the policies of a bundle, in the order of the files."""
    workloads = tuple(bundle.index.workloads.values())
    policies = [
        document
        for document in bundle.documents
        if document.is_policy and document.spec.enforcement is not Enforcement.OFF
    ]
    problems: list[Problem] = []

    def warn(document: PolicyDocument, items: Iterable[_Warning]) -> None:
        problems.extend(document.problem(("spec", *path), f"warning: {text}") for path, text in items)

    for policy in policies:
        warn(policy, _unknown_resources(policy.spec.match))
        warn(policy, _misspelt(policy.spec, workloads))
        warn(policy, _never_denied(policy))
        warn(policy, _too_wide_for_webhooks(policy, bundle))
        if policy.kind == _RESERVED_LABELS:
            warn(policy, _without_templates(policy.spec.match, workloads))
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
    """Yield the rules for every resource of an API group: a webhook called for all of them can stop a cluster."""
    for policy in bundle.documents:
        if policy.is_policy and policy.spec.enforcement is not Enforcement.OFF:
            for path, text in _too_wide(policy, bundle):
                yield policy.problem(("spec", *path), text)


def _too_wide(policy: PolicyDocument, bundle: Bundle) -> Iterator[_Warning]:
    groups = {resource.group for resource in pool_resources(bundle.providers.values())}
    of_pools = {group: f"all of {group}, where node pools are judged with failurePolicy Fail" for group in groups}
    of_any = {"*": "every resource", **of_pools}
    for number, rule in enumerate(policy.spec.match.resource_rules or ()):
        for index, resource in enumerate(rule.resources):
            too_many = of_any | _TOO_MANY if resource in _ALL else of_any
            what = [too_many[group] for group in rule.api_groups if group in too_many]
            if what and resource.startswith("*"):
                text = f"{resource!r} would have the API server call for {what[0]}; name those that are meant"
                yield _Warning(("match", "resourceRules", number, "resources", index), text)


def _too_wide_for_webhooks(policy: PolicyDocument, bundle: Bundle) -> Iterator[_Warning]:
    for path, text in _too_wide(policy, bundle):
        yield _Warning(path, f"`webhook-config` refuses the policy: {text}")


def _unknown_resources(match: MatchSpec) -> Iterator[_Warning]:
    """Yield API groups, resources and versions that Kubernetes does not have; custom ones may exist."""
    for name, rules in (
        ("resourceRules", match.resource_rules or ()),
        ("excludeResourceRules", match.exclude_resource_rules),
    ):
        for number, rule in enumerate(rules):
            for place, group in enumerate(rule.api_groups):
                if text := _unknown_group(group, rule.resources[0]):
                    yield _Warning(("match", name, number, "apiGroups", place), text)
            if all(map(is_built_in, rule.api_groups)):
                for place, resource in enumerate(rule.resources):
                    if text := _unknown_resource(rule, resource.partition("/")[0]):
                        yield _Warning(("match", name, number, "resources", place), text)


def _unknown_group(group: str, resource: str) -> str:
    if group in GONE:
        return f"never matches: Kubernetes has no API group {group} any more{_elsewhere(resource)}"
    if group == "*" or "." in group or is_built_in(group):  # the group of a custom resource has a dot in its name
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
    if "*" in rule.api_versions or any(not each or not each.isdisjoint(rule.api_versions) for each in served.values()):
        return ""
    what = "everything" if resource == "*" else resource
    versions = " and ".join(
        f"{group or 'the core group'} serves {what} as {' and '.join(sorted(each))}" for group, each in served.items()
    )
    return f"never matches: {versions}, and this rule names {', '.join(rule.api_versions)}"


def _elsewhere(resource: str) -> str:
    """Name the API groups that have such a resource."""
    groups = [repr(group) for group in groups_with(resource.partition("/")[0])]
    return f"; {resource} are in {' and '.join(groups)}" if groups else ""


def _without_templates(match: MatchSpec, workloads: Iterable[Workload]) -> Iterator[_Warning]:
    """Yield rules that name workloads but not Pods: templates are judged with the Pods made of them."""
    rules = match.resource_rules or ()
    if any(is_named(rule, *_PODS) for rule in rules):
        return
    named = {(workload.group, workload.resource) for workload in workloads}
    for number, rule in enumerate(rules):
        for place, resource in enumerate(rule.resources):
            if any(name == resource and is_named(rule, group, name) for group, name in named):
                text = (
                    f"never looks at the pod templates of {resource}, only at their own labels: name pods too "
                    f'(apiGroups: [""], resources: [pods]), and the templates are judged with them'
                )
                yield _Warning(("match", "resourceRules", number, "resources", place), text)


def _misspelt(spec: Any, workloads: Collection[Workload]) -> Iterator[_Warning]:  # noqa: ANN401 - of any policy kind
    """Yield kinds of workload, classes and members of template paths that are close to a known one."""
    kinds = {f"{workload.kind}.{workload.group}".removesuffix(".") for workload in workloads}
    members = {member for workload in workloads for path in workload.paths for member in path.members}
    for name, written in _KINDS.items():
        for number, pattern in enumerate(getattr(spec, name, ())):
            if not is_glob(pattern) and (hint := _nearly(pattern, kinds)):
                yield _Warning((written, number), f"matches nothing that is known{hint}")
    for name in getattr(spec, "classes", ()):
        if hint := _nearly(name.rstrip(string.digits), _CLASSES):
            yield _Warning(("classes", name), f"adds a new class{hint}")
    for number, driver in enumerate(getattr(spec, "drivers", ())):
        if hint := _nearly(driver.member, members):
            yield _Warning(("drivers", number, "member"), f"no known template path has this member{hint}")


def _nearly(name: str, known: Collection[str]) -> str:
    return "" if name in known else did_you_mean(name, known, cutoff=_MISSPELT)


def _never_denied(policy: PolicyDocument) -> Iterator[_Warning]:
    """Yield findings set to deny in a policy that denies nothing; of some kinds that is the default."""
    enforcement = policy.spec.enforcement
    if enforcement is Enforcement.DENY:
        return
    spec = cast("dict[str, Any]", policy.document.value).get("spec") or {}
    why = "" if "enforcement" in spec else " by default"
    denied = [name for name, level in spec.get("findings", {}).items() if level == Enforcement.DENY]
    if denied:
        lowered = f"{', '.join(denied)} can't be denied: the policy's enforcement is {enforcement}{why}"
        text = f"{lowered}; set `enforcement: deny`, and `warn` for the findings that shouldn't deny"
        yield _Warning(("findings", denied[0]), text)


def _open_break_glass(groups: Sequence[str]) -> Iterator[_Warning]:
    for number, glob in enumerate(groups):
        if Globs((glob,)).match(_EVERYBODY):
            text = "everyone can override a denial; list only the groups that should"
            yield _Warning(("breakGlass", "groups", number), f"everybody is in {_EVERYBODY}, so {text}")


def _exemption(
    spec: ExemptSpec, path: tuple[str | int, ...], policies: Sequence[str], today: date
) -> Iterator[_Warning]:
    """Yield the probable mistakes in an entry of ``exempt``, or in an Exemption document."""
    if spec.expires is not None and today > spec.expires:
        text = f"the exemption ended on {spec.expires} ({spec.reason}); remove it, or extend it"
        yield _Warning((*path, "expires"), text)
        return
    if spec.expires is not None and today >= spec.expires - WARN_BEFORE:
        text = (
            f"the exemption ends on {spec.expires} ({spec.reason}); extend it, or correct the objects that it exempts"
        )
        yield _Warning((*path, "expires"), text)
    given = [globs for globs in (spec.users, spec.groups, spec.names) if globs]
    restricted = spec.namespaces or spec.service_accounts or spec.object_selector is not None
    if not restricted and all("*" in globs for globs in given):
        for name in policies:
            text = f"exempts everything that {name} matches; if you intend this, set `enforcement: off`"
            yield _Warning(path, text)
