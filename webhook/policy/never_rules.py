"""Resource rules that never match, or not with all that they name."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from webhook.globs import is_glob
from webhook.kube.resources import (
    GONE,
    built_in_resources,
    groups_with,
    is_built_in,
    operations_on,
    plural_of,
    subresources_of,
    versions_of,
)
from webhook.policy.errors import did_you_mean
from webhook.policy.match import is_named, served_versions
from webhook.policy.never import LONG, Never, is_misspelt
from webhook.review import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.policy.common import MatchSpec, ResourceRuleSpec
    from webhook.policy.never import Ground


def never_in_rules(match: MatchSpec, ground: Ground) -> Iterator[Never]:
    """What of the resource rules of a ``match`` never matches."""
    for name, written in (
        ("resourceRules", match.resource_rules or ()),
        ("excludeResourceRules", match.exclude_resource_rules),
    ):
        for number, rule in enumerate(written):
            for path, text in _in_rule(rule, ground):
                yield Never(("match", name, number, *path), text)
    yield from _excluded(match)


def _in_rule(rule: ResourceRuleSpec, ground: Ground) -> Iterator[Never]:
    """What is wrong with a rule by itself: with its groups, with each resource, with operations and names."""
    groups = []
    for number, group in enumerate(rule.api_groups):
        if why := ground.why_no_group(group, rule.resources):
            yield Never(("apiGroups", number), why + (_elsewhere(rule.resources[0]) if group in GONE else ""))
        else:
            groups.append(group)
    if not groups:
        return
    whys = [_why_never(path, groups, rule, ground) for path in rule.resources]
    for number, why in enumerate(whys):
        if why:
            yield Never(("resources", number), why)
    if not any(whys):
        yield from _operations(rule, groups, ground)
    if all(map(ground.has_plain_names, groups)):
        for number, name in enumerate(rule.resource_names):
            if is_glob(name):
                text = f"never matches: resourceNames are whole names, no globs, and nothing is named {name}"
                yield Never(("resourceNames", number), text)


def _why_never(path: str, named: Sequence[str], rule: ResourceRuleSpec, ground: Ground) -> str:
    """Why a resource in any of these groups never matches; empty: it may."""
    groups = [group for group in named if not ground.lacks(group, path)]
    if not groups:
        return _not_served(named, path)
    return (
        _misspelt(groups, path, ground)
        or _not_in_version(groups, path, rule.api_versions)
        or _not_there(groups, path, ground)
        or _not_asked(groups, path, rule.operations)
        or _not_in_scope(groups, path, rule.scope, ground)
    )


def _not_served(groups: Sequence[str], path: str) -> str:
    resource = path.partition("/")[0]
    known = (each.plural for group in groups for each in built_in_resources(group))
    hint = _elsewhere(path) or did_you_mean(resource, known)
    return f"never matches: Kubernetes has no resource {resource} in API group {_named(groups)}{hint}"


def _named(groups: Sequence[str]) -> str:
    return " or ".join(group or "''" for group in groups)


def _elsewhere(path: str) -> str:
    """The API groups that have such a resource."""
    resource = path.partition("/")[0]
    groups = [repr(group) for group in groups_with(resource)]
    return f"; {resource} are in {' and '.join(groups)}" if groups else ""


def _misspelt(groups: Sequence[str], path: str, ground: Ground) -> str:
    """A resource that nobody described, and that is nearly called like one that is."""
    resource = path.partition("/")[0]
    known = {group: ground.plurals(group) for group in groups}
    if resource == "*" or any(resource in names for names in known.values()):
        return ""
    plural = plural_of(resource)
    if "*" not in groups and all(plural in names for names in known.values()):
        return f"never matches: a resource is named in the plural, and {_named(groups)} has `{plural}`"
    meant = [plural if plural in names else _nearly(resource, names, group) for group, names in known.items()]
    if not all(meant):
        return ""
    where = "no API group has a" if "*" in groups else f"{_named(groups)} has no"
    return f"matches nothing that is known: {where} resource {resource}, did you mean `{meant[0]}`?"


def _nearly(resource: str, names: Iterable[str], group: str) -> str:
    """The name that is meant. In all groups together, another letter may well make another word: bindings, findings."""
    for name in sorted(names):
        same_letters = len(resource) != len(name) or sorted(resource) == sorted(name)
        if is_misspelt(resource, name) and (group != "*" or (same_letters and len(name) >= LONG)):
            return name
    return ""


def _not_in_version(groups: Sequence[str], path: str, versions: Sequence[str]) -> str:
    resource = path.partition("/")[0]
    served = {group: versions_of(group, resource) if is_built_in(group) else frozenset() for group in groups}
    if "*" in versions or any(not each or not each.isdisjoint(versions) for each in served.values()):
        return ""
    what = "everything" if resource == "*" else resource
    said = " and ".join(
        f"{group or 'the core group'} serves {what} as {' and '.join(sorted(each))}" for group, each in served.items()
    )
    return f"never matches: {said}, and this rule names {', '.join(versions)}"


def _not_there(groups: Sequence[str], path: str, ground: Ground) -> str:
    """A subresource that the resource does not have."""
    resource, _, subresource = path.partition("/")
    if subresource in {"", "*"}:
        return ""
    if all(is_built_in(group) and versions_of(group, resource) for group in groups):
        there = {each for group in groups for each in subresources_of(group, resource)}
        hint = did_you_mean(subresource, there) or f"; there are {', '.join(sorted(there)) or 'none'}"
    elif all((group, resource) in ground.namespaced for group in groups):
        there = {"scale", "status"}  # what a CustomResourceDefinition can have
        hint = did_you_mean(subresource, there)
    else:
        return ""
    if subresource in there:
        return ""
    what = f"nothing in {_named(groups)} has a" if resource == "*" else f"{resource} has no"
    return f"never matches: {what} subresource {subresource}{hint}"


def _not_asked(groups: Sequence[str], path: str, operations: Sequence[str]) -> str:
    """A rule that names no operation that there is on the resource."""
    possible = _possible(groups, path)
    if possible is not None and not possible:
        return f"never matches: {path} is only read"
    if possible is None or "*" in operations or not possible.isdisjoint(operations):
        return ""
    asked = ", ".join(word for word in OPERATIONS if word in possible)
    return f"never matches: {path} has only {asked}, and this rule names {', '.join(operations)}"


def _possible(groups: Iterable[str], path: str) -> frozenset[str] | None:
    """The operations that there are on the resource in any of the groups; None: that is not known."""
    resource, _, subresource = path.partition("/")
    if subresource == "*":
        return None
    each = [operations_on(group, subresource, resource) for group in groups]
    return None if None in each else frozenset().union(*filter(None, each))


def _operations(rule: ResourceRuleSpec, groups: Sequence[str], ground: Ground) -> Iterator[Never]:
    """Operations that there are on no resource of the rule, where there are others."""
    possible = [
        _possible((group for group in groups if not ground.lacks(group, path)), path) for path in rule.resources
    ]
    if None in possible:
        return
    there = frozenset().union(*filter(None, possible))
    for number, operation in enumerate(rule.operations):
        if operation not in {"*", *there}:
            hint = "; it is that of subresources, as pods/exec" if operation == "CONNECT" else ""
            text = f"never matches: there is no {operation} of {', '.join(rule.resources)}{hint}"
            yield Never(("operations", number), text)


def _not_in_scope(groups: Sequence[str], path: str, scope: str, ground: Ground) -> str:
    resource = path.partition("/")[0]
    if scope == "*" or (resource == "namespaces" and scope == "Cluster"):
        return ""
    places = {ground.place(group, resource) for group in groups}
    if places != {scope == "Cluster"}:
        return ""
    where = "cluster-scoped" if places == {False} else "in namespaces"
    return f"never matches: scope is {scope}, and {resource} are {where}"


def _excluded(match: MatchSpec) -> Iterator[Never]:
    """Rules of which nothing is left."""
    for number, rule in enumerate(match.resource_rules or ()):
        operations = OPERATIONS if "*" in rule.operations else rule.operations
        if all(
            any(_takes_out(other, rule, group, resource, operation) for other in match.exclude_resource_rules)
            for group, resource, operation in product(rule.api_groups, rule.resources, operations)
        ):
            yield Never(("match", "resourceRules", number), "never matches: excludeResourceRules takes out all of it")


def _is_served(versions: Sequence[str], group: str, resource: str) -> bool:
    """One version that is excluded takes out the resource in all; of ``*`` it is not known what has that version."""
    of_all = group == "*" or resource.startswith("*")
    return "*" in versions or (not of_all and bool(served_versions(versions, group, resource)))


def _takes_out(other: ResourceRuleSpec, rule: ResourceRuleSpec, group: str, resource: str, operation: str) -> bool:
    named = set(rule.resource_names)
    return (
        is_named(other, group, resource)
        and not {"*", operation}.isdisjoint(other.operations)
        and (set(rule.api_versions) <= set(other.api_versions) or _is_served(other.api_versions, group, resource))
        and (not other.resource_names or (bool(named) and named <= set(other.resource_names)))
        and other.scope in {"*", rule.scope}
    )
