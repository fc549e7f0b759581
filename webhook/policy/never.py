"""Parts of ``match`` and ``exempt`` that can never take effect: a policy that does nothing looks like a good one.

Everything said here is certain; where it depends on what a cluster has, nothing is said.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.globs import Globs, covers, is_glob
from webhook.kube.resources import (
    built_in_resources,
    groups_with,
    is_built_in,
    operations_on,
    plural_of,
    resource_named,
    served_version,
)
from webhook.policy.errors import did_you_mean
from webhook.policy.match import SERVICE_ACCOUNT, resource_matches
from webhook.policy.terms import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.policy.common import ExemptSpec, LabelSelectorSpec, MatchSpec, ResourceRuleSpec


class Never(NamedTuple):
    """Something that can never take effect: where below ``spec`` it is, and why."""

    path: tuple[str | int, ...]
    text: str


_NAMESPACE: Final = re.compile(r"([a-z0-9*?-]|\[.[^]]*\])+")
"""A glob that may match the name of a namespace."""

Places = set[bool | None]
"""Where objects are: in namespaces (True), in none (False), nobody knows (None)."""


class Rule(NamedTuple):
    """What of a resource rule counts here, whether it is written or what a kind looks at by default."""

    api_groups: Sequence[str]
    resources: Sequence[str]
    scope: str


_ODDLY_NAMED: Final = frozenset({"certificates.k8s.io", "rbac.authorization.k8s.io"})
"""API groups of Kubernetes that take almost any name."""


class Ground(msgspec.Struct, frozen=True):
    """What policies are judged by here.

    Attributes:
        namespaced: by API group and plural, of resources that are not Kubernetes' own: do they live in namespaces?
        system_namespaces: globs of namespaces that are never touched.
    """

    namespaced: Mapping[tuple[str, str], bool]
    system_namespaces: tuple[str, ...]

    def places(self, rules: Iterable[Rule]) -> Places:
        """Where that is which the rules name."""
        return {
            self._place(rule.scope, group, resource.partition("/")[0])
            for rule in rules
            for group, resource in product(rule.api_groups, rule.resources)
            if not _is_missing(group, resource)
        }

    def _place(self, scope: str, group: str, resource: str) -> bool | None:
        if (group, resource) == ("", "namespaces"):
            return None  # cluster-scoped, but the namespace parts of `match` ask about them too
        if scope != "*":
            return scope == "Namespaced"
        return self.place(group, resource)

    def has_plain_names(self, group: str) -> bool:
        """Are objects of the API group named as hosts are, without ``*`` and the like?"""
        if is_built_in(group):
            return group not in _ODDLY_NAMED
        return any(group == of for of, _ in self.namespaced)

    def place(self, group: str, resource: str) -> bool | None:
        """The same of one resource."""
        known = resource_named(group, resource)
        return known.namespaced if known is not None else self.namespaced.get((group, resource))


def never_matching(match: MatchSpec, places: Places, ground: Ground) -> Iterator[Never]:
    """What of ``match`` never matches, or restricts nothing.

    Args:
        match: as it is written.
        places: where that is which the policy looks at.
        ground: what is known.
    """
    for name, written in (
        ("resourceRules", match.resource_rules or ()),
        ("excludeResourceRules", match.exclude_resource_rules),
    ):
        for number, rule in enumerate(written):
            for path, text in _rule(rule, ground):
                yield Never(("match", name, number, *path), text)
    yield from _excluded(match)
    if places == {False}:
        yield from _without_namespaces(match)
    else:
        in_namespaces = "never matches" if places == {True} else "never matches anything in a namespace"
        yield from _namespaces(match, ground, in_namespaces)
        yield from _selector("namespaceSelector", match.namespace_selector, in_namespaces)
    yield from _selector("objectSelector", match.object_selector, "never matches")


def _selector(name: str, selector: LabelSelectorSpec | None, what: str) -> Iterator[Never]:
    if key := _contradiction(selector):
        yield Never(("match", name), f"{what}: no value of label {key} meets all that is required of it")


def never_exempting(exempt: ExemptSpec, match: MatchSpec, places: Places, ground: Ground) -> Never | None:
    """Why an exemption lets nothing through that the policy looks at; None: it may. Its last day does not count."""
    if key := _contradiction(exempt.object_selector):
        return Never(("objectSelector",), f"never holds: no value of label {key} meets all that is required of it")
    if exempt.namespaces:
        if places == {False}:
            return Never(("namespaces",), "never holds: what the policy looks at is in no namespace")
        if all(_is_out_of_sight(glob, match, ground) for glob in exempt.namespaces):
            return Never(("namespaces",), "never holds: the policy looks at nothing in these namespaces")
    if exempt.users and exempt.service_accounts and not any(map(is_glob, exempt.users)):
        accounts = Globs(exempt.service_accounts)
        own = [user.removeprefix(SERVICE_ACCOUNT) for user in exempt.users if user.startswith(SERVICE_ACCOUNT)]
        if not any(map(accounts.match, own)):
            text = (
                "never holds: none of these users is one of the serviceAccounts; write two entries, of which one holds"
            )
            return Never(("users",), text)
    return None


def exempts_all(exempt: ExemptSpec, match: MatchSpec, places: Places) -> bool:
    """Does the exemption let everything through that the policy looks at?"""
    included = match.namespaces.include or ("*",)
    if exempt.namespaces and (
        places != {True} or not all(any(covers(wide, glob) for wide in exempt.namespaces) for glob in included)
    ):
        return False
    whoever = all("*" in globs for globs in (exempt.users, exempt.groups, exempt.names) if globs)
    selector = exempt.object_selector
    selected = selector is not None and bool(selector.match_labels or selector.match_expressions)
    return whoever and not selected and not exempt.service_accounts


def _rule(rule: ResourceRuleSpec, ground: Ground) -> Iterator[Never]:
    """What is wrong with each resource of a rule by itself."""
    for number, path in enumerate(rule.resources):
        why = (
            _why_not_served(rule, path)
            or _why_not_declared(rule, path, ground)
            or _why_not_in_version(rule, path)
            or _why_not_asked(rule, path)
            or _why_not_in_scope(rule, path, ground)
        )
        if why:
            yield Never(("resources", number), f"never matches: {why}")
    if all(map(ground.has_plain_names, rule.api_groups)):
        for number, name in enumerate(rule.resource_names):
            if is_glob(name):
                text = f"never matches: resourceNames are whole names, no globs, and nothing is named {name}"
                yield Never(("resourceNames", number), text)


def _is_missing(group: str, path: str) -> bool:
    resource = path.partition("/")[0]
    return is_built_in(group) and resource != "*" and resource_named(group, resource) is None


def _why_not_served(rule: ResourceRuleSpec, path: str) -> str:
    if not all(_is_missing(group, path) for group in rule.api_groups):
        return ""
    resource = path.partition("/")[0]
    groups = " or ".join(group or "''" for group in rule.api_groups)
    elsewhere = [repr(group) for group in groups_with(resource)]
    hint = (
        f"; it is in {' and '.join(elsewhere)}"
        if elsewhere
        else did_you_mean(resource, (each.plural for group in rule.api_groups for each in built_in_resources(group)))
    )
    return f"Kubernetes has no resource {resource} in API group {groups}{hint}"


def _why_not_declared(rule: ResourceRuleSpec, path: str, ground: Ground) -> str:
    """A singular. Misspelt plurals might be resources that the group has too."""
    resource = path.partition("/")[0]
    plural = plural_of(resource)
    known = [(group, resource) in ground.namespaced for group in rule.api_groups]
    meant = [(group, plural) in ground.namespaced for group in rule.api_groups]
    if any(known) or not all(meant):
        return ""
    groups = " or ".join(rule.api_groups)
    return f"a resource is named in the plural, and {groups} has `{plural}`"


def _why_not_in_version(rule: ResourceRuleSpec, path: str) -> str:
    served = {group: served_version(group) for group in rule.api_groups if not _is_missing(group, path)}
    if "*" in rule.api_versions or any(version in {None, *rule.api_versions} for version in served.values()):
        return ""
    said = " and ".join(f"{group or 'the core group'} is served as {version}" for group, version in served.items())
    return f"{said}, and this rule names {', '.join(rule.api_versions)}"


def _why_not_asked(rule: ResourceRuleSpec, path: str) -> str:
    """A rule that names no operation that there is on the resource."""
    resource, _, subresource = path.partition("/")
    if subresource == "*" or (resource == "*" and subresource):
        return ""
    possible = [operations_on(group, subresource) for group in rule.api_groups]
    there = frozenset().union(*(each for each in possible if each is not None))
    if None in possible or "*" in rule.operations or there & set(rule.operations):
        return ""
    asked = ", ".join(word for word in OPERATIONS if word in there)
    if not asked:
        return f"there is no such subresource of {resource} that can be changed"
    return f"{path} has only {asked}, and this rule names {', '.join(rule.operations)}"


def _why_not_in_scope(rule: ResourceRuleSpec, path: str, ground: Ground) -> str:
    resource = path.partition("/")[0]
    if rule.scope == "*" or (resource == "namespaces" and rule.scope == "Cluster"):
        return ""
    places = {ground.place(group, resource) for group in rule.api_groups if not _is_missing(group, path)}
    if places != {rule.scope == "Cluster"}:
        return ""
    return f"scope is {rule.scope}, and {resource} are {'cluster-scoped' if places == {False} else 'in namespaces'}"


def _excluded(match: MatchSpec) -> Iterator[Never]:
    """Rules of which nothing is left."""
    for number, rule in enumerate(match.resource_rules or ()):
        operations = OPERATIONS if "*" in rule.operations else rule.operations
        if all(
            any(_takes_out(other, rule, group, resource, operation) for other in match.exclude_resource_rules)
            for group, resource, operation in product(rule.api_groups, rule.resources, operations)
        ):
            yield Never(("match", "resourceRules", number), "never matches: excludeResourceRules takes out all of it")


def _takes_out(other: ResourceRuleSpec, rule: ResourceRuleSpec, group: str, resource: str, operation: str) -> bool:
    named = set(rule.resource_names)
    return (
        not {"*", group}.isdisjoint(other.api_groups)
        and any(resource_matches(pattern, resource) for pattern in other.resources)
        and not {"*", operation}.isdisjoint(other.operations)
        and ("*" in other.api_versions or set(rule.api_versions) <= set(other.api_versions))
        and (not other.resource_names or (bool(named) and named <= set(other.resource_names)))
        and other.scope in {"*", rule.scope}
    )


def _without_namespaces(match: MatchSpec) -> Iterator[Never]:
    """As in Kubernetes, the namespace parts do not restrict what is in no namespace."""
    text = "restricts nothing: what the policy looks at is cluster-scoped, and in no namespace"
    if match.namespaces.include or match.namespaces.exclude:
        yield Never(("match", "namespaces"), text)
    if match.namespace_selector is not None:
        yield Never(("match", "namespaceSelector"), text)


def _namespaces(match: MatchSpec, ground: Ground, what: str) -> Iterator[Never]:
    excluded = match.namespaces.exclude
    for number, glob in enumerate(match.namespaces.include):
        if not _NAMESPACE.fullmatch(glob):
            text = f"no namespace is named {glob}: names have lower case letters, digits and '-'"
            yield Never(("match", "namespaces", "include", number), text)
    if not match.namespaces.include:
        if any(covers(wide, "*") for wide in excluded):
            yield Never(("match", "namespaces", "exclude"), f"{what}: it takes out every namespace")
    elif _all_in(match.namespaces.include, excluded):
        text = f"{what}: exclude takes out every namespace that include names"
        yield Never(("match", "namespaces", "include"), text)
    elif all(_all_in([glob], (*excluded, *_system(glob, [glob], ground))) for glob in match.namespaces.include):
        text = f"{what}: include takes in only system namespaces; only one that is named whole is looked at, to warn"
        yield Never(("match", "namespaces", "include"), text)


def _all_in(globs: Iterable[str], wide: Sequence[str]) -> bool:
    return all(any(covers(each, glob) for each in wide) for glob in globs)


def _system(glob: str, include: Sequence[str], ground: Ground) -> tuple[str, ...]:
    """System namespaces, unless `include` names one of those whole that the glob matches: then the policy may warn."""
    named = [each for each in include if not is_glob(each)]
    return () if named and any(map(Globs((glob,)).match, named)) else ground.system_namespaces


def _is_out_of_sight(glob: str, match: MatchSpec, ground: Ground) -> bool:
    include = match.namespaces.include
    if _all_in([glob], (*match.namespaces.exclude, *_system(glob, include, ground))):
        return True
    return bool(include) and not is_glob(glob) and not Globs(include).match(glob)


def _contradiction(selector: LabelSelectorSpec | None) -> str:
    """The key of which a selector requires what no label can be; empty: there is none."""
    if selector is None:
        return ""
    required = [*((key, "In", {value}) for key, value in selector.match_labels.items())]
    required += [(each.key, str(each.operator), set(each.values)) for each in selector.match_expressions]
    for key in dict.fromkeys(key for key, _, _ in required):
        of_key = [(operator, values) for name, operator, values in required if name == key]
        operators = {operator for operator, _ in of_key}
        allowed = [values for operator, values in of_key if operator == "In"]
        forbidden = set().union(*(values for operator, values in of_key if operator == "NotIn"))
        absent = "DoesNotExist" in operators and not operators.isdisjoint({"In", "Exists"})
        if absent or (allowed and not set.intersection(*allowed) - forbidden):
            return key
    return ""
