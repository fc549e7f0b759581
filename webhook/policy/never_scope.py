"""Namespaces, selectors and exemptions that never match; and all of `match`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.globs import Globs, covers, is_glob
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.policy.match import SAME_OBJECT, service_account
from webhook.policy.never import Never
from webhook.policy.never_rules import never_in_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.policy.common import ExemptSpec, LabelSelectorSpec, MatchSpec
    from webhook.policy.never import Ground, Places

_NAMESPACE: Final = re.compile(r"([a-z0-9*?-]|\[.[^]]*\])+")
_ACCOUNT: Final = re.compile(r"([a-z0-9*?.-]|\[.[^]]*\])+")
"""Globs that may match the name of a namespace, and of a service account."""

_GROUPS: Final = re.compile(r"system:(serviceaccounts|masters|authenticated|unauthenticated|nodes)(:.*)?")
_EVERYBODY: Final = "system:authenticated"
_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+:[^:]+)")
"""What Kubernetes itself calls groups and users; https://kubernetes.io/docs/reference/access-authn-authz/rbac/"""


def never_matching(match: MatchSpec, places: Places, ground: Ground) -> Iterator[Never]:
    """What of ``match`` never matches, or restricts nothing.

    Args:
        match: as it is written.
        places: where that is which the policy looks at.
        ground: what is known.
    """
    yield from never_in_rules(match, ground)
    if places == {False}:
        yield from _without_namespaces(match)
    else:
        in_namespaces = "never matches" if places == {True} else "never matches anything in a namespace"
        yield from _namespaces(match, ground, in_namespaces)
        yield from _selector("namespaceSelector", match.namespace_selector, in_namespaces)
        if not _contradiction(match.namespace_selector) and (why := _selected_by_name(match, ground)):
            yield Never(("match", "namespaceSelector"), f"{in_namespaces}: {why}")
    yield from _selector("objectSelector", match.object_selector, "never matches")


def _selector(name: str, selector: LabelSelectorSpec | None, what: str) -> Iterator[Never]:
    if key := _contradiction(selector):
        yield Never(("match", name), f"{what}: no value of label {key} meets all that is required of it")


def never_exempting(exempt: ExemptSpec, match: MatchSpec, places: Places, ground: Ground) -> Never | None:
    """Why an exemption lets nothing through that the policy looks at; None: it may. Its last day does not count."""
    if key := _contradiction(exempt.object_selector):
        return Never(("objectSelector",), f"never holds: no value of label {key} meets all that is required of it")
    if exempt.object_selector is not None and match.resource_rules:
        paths = [path for rule in match.resource_rules for path in rule.resources]
        if SAME_OBJECT.isdisjoint(path.partition("/")[2].replace("*", "") for path in paths):
            text = f"never holds: the labels that come with {', '.join(paths)} are not those of the resource"
            return Never(("objectSelector",), text)
    if exempt.namespaces:
        if places == {False}:
            return Never(("namespaces",), "never holds: what the policy looks at is in no namespace")
        if all(_is_out_of_sight(glob, match, ground) for glob in exempt.namespaces):
            return Never(("namespaces",), "never holds: the policy looks at nothing in these namespaces")
    if exempt.users and exempt.service_accounts and not any(map(is_glob, exempt.users)):
        accounts = Globs(exempt.service_accounts)
        if not any(map(accounts.match, filter(None, map(service_account, exempt.users)))):
            text = (
                "never holds: none of these users is one of the serviceAccounts; write two entries, of which one holds"
            )
            return Never(("users",), text)
    return None


def nobody(exempt: ExemptSpec) -> Iterator[Never]:
    """Names in an exemption that no user, group, service account or namespace has."""
    for number, name in enumerate(exempt.users):
        if _GROUPS.fullmatch(name):
            yield Never(("users", number), f"never holds: {name} is a group; name it under `groups`")
    yield from _users_as_groups(exempt.groups)
    for number, account in enumerate(exempt.service_accounts):
        namespace, _, name = account.partition(":")
        if not (_NAMESPACE.fullmatch(namespace) and _ACCOUNT.fullmatch(name)):
            text = f"no service account is named {account}: names have lower case letters, digits, '-' and '.'"
            yield Never(("serviceAccounts", number), f"never holds: {text}")
    for number, text in _no_namespaces(exempt.namespaces):
        yield Never(("namespaces", number), f"never holds: {text}")


def odd_groups(groups: Sequence[str]) -> Iterator[Never]:
    """Groups of ``breakGlass`` that nobody is in, and those that everybody is in."""
    yield from _users_as_groups(groups)
    for number, glob in enumerate(groups):
        if Globs((glob,)).match(_EVERYBODY):
            text = "whoever writes the annotation overrides a denial: name the groups that may"
            yield Never(("groups", number), f"everybody is in {_EVERYBODY}, so {text}")


def _users_as_groups(groups: Sequence[str]) -> Iterator[Never]:
    for number, name in enumerate(groups):
        if account := _SERVICE_ACCOUNT.fullmatch(name):
            why = f"{name} is a user: `serviceAccounts: [{account[1]}]` of an exemption names it"
            yield Never(("groups", number), f"never holds: {why}")


def exempts_all(exempt: ExemptSpec, match: MatchSpec, places: Places) -> bool:
    """Does the exemption let everything through that the policy looks at?"""
    included = match.namespaces.include or ("*",)
    if exempt.namespaces and (
        places != {True} or not all(any(covers(wide, glob) for wide in exempt.namespaces) for glob in included)
    ):
        return False
    whoever = all("*" in globs for globs in (exempt.users, exempt.groups, exempt.names) if globs)
    return whoever and exempt.object_selector is None and not exempt.service_accounts


def _without_namespaces(match: MatchSpec) -> Iterator[Never]:
    """As in Kubernetes, the namespace parts do not restrict what is in no namespace."""
    text = "restricts nothing: what the policy looks at is cluster-scoped, and in no namespace"
    if match.namespaces.include or match.namespaces.exclude:
        yield Never(("match", "namespaces"), text)
    if match.namespace_selector is not None:
        yield Never(("match", "namespaceSelector"), text)


def _namespaces(match: MatchSpec, ground: Ground, what: str) -> Iterator[Never]:
    excluded = match.namespaces.exclude
    for name, globs in (("include", match.namespaces.include), ("exclude", excluded)):
        for number, text in _no_namespaces(globs):
            yield Never(("match", "namespaces", name, number), text)
    if not match.namespaces.include:
        if any(covers(wide, "*") for wide in excluded):
            yield Never(("match", "namespaces", "exclude"), f"{what}: it takes out every namespace")
    elif _all_in(match.namespaces.include, excluded):
        text = f"{what}: exclude takes out every namespace that include names"
        yield Never(("match", "namespaces", "include"), text)
    elif all(_all_in([glob], (*excluded, *_system(glob, [glob], ground))) for glob in match.namespaces.include):
        text = f"{what}: include takes in only system namespaces; only one that is named whole is looked at, to warn"
        yield Never(("match", "namespaces", "include"), text)


def _no_namespaces(globs: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, glob in enumerate(globs):
        if not _NAMESPACE.fullmatch(glob):
            yield number, f"no namespace is named {glob}: names have lower case letters, digits and '-'"


def never_denying(match: MatchSpec, places: Places, ground: Ground) -> Iterator[Never]:
    """Namespaces of a policy that denies, of which each is one where the most is a warning."""
    include = match.namespaces.include
    if places == {True} and include and not any(map(is_glob, include)) and _all_in(include, ground.system_namespaces):
        text = "denies nothing: include takes in only system namespaces, where a denial is a warning"
        yield Never(("match", "namespaces", "include"), f"{text}; write `enforcement: warn`")


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


def _selected_by_name(match: MatchSpec, ground: Ground) -> str:
    """Why no namespace has a name that both ``namespaces`` and ``namespaceSelector`` take; empty: one may."""
    namespaces = match.namespaces
    required = [
        (operator, values)
        for key, operator, values in _requirements(match.namespace_selector)
        if key == NAMESPACE_NAME_LABEL
    ]
    selected = [values for operator, values in required if operator == "In"]
    left_out = set().union(*(values for operator, values in required if operator == "NotIn"))
    if any(operator == "DoesNotExist" for operator, _ in required):
        return f"every namespace has the label {NAMESPACE_NAME_LABEL}"
    if selected:
        names = sorted(set.intersection(*selected) - left_out)
        include, exclude = Globs(namespaces.include or ("*",)), Globs(namespaces.exclude)
        system = Globs(ground.system_namespaces)
        seen = [name for name in names if include.match(name) and not exclude.match(name)]
        if not seen:
            return f"it selects {', '.join(names)} alone, and `namespaces` leaves that out"
        if all(system.match(name) and name not in namespaces.include for name in seen):
            return f"it selects {', '.join(seen)} alone, of which nothing is looked at: a system namespace"
    elif namespaces.include and left_out.issuperset(namespaces.include):
        return "it leaves out every namespace that namespaces.include names"
    return ""


def _requirements(selector: LabelSelectorSpec | None) -> list[tuple[str, str, set[str]]]:
    """Key, operator and values of all that a selector requires."""
    if selector is None:
        return []
    return [
        *((key, "In", {value}) for key, value in selector.match_labels.items()),
        *((each.key, str(each.operator), set(each.values)) for each in selector.match_expressions),
    ]


def _contradiction(selector: LabelSelectorSpec | None) -> str:
    """The key of which a selector requires what no label can be; empty: there is none."""
    required = _requirements(selector)
    for key in dict.fromkeys(key for key, _, _ in required):
        of_key = [(operator, values) for name, operator, values in required if name == key]
        operators = {operator for operator, _ in of_key}
        allowed = [values for operator, values in of_key if operator == "In"]
        forbidden = set().union(*(values for operator, values in of_key if operator == "NotIn"))
        absent = "DoesNotExist" in operators and not operators.isdisjoint({"In", "Exists"})
        if absent or (allowed and not set.intersection(*allowed) - forbidden):
            return key
    return ""
