"""``match`` and ``exempt``, compiled: does a policy look at this request, and is the request let through?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from webhook.globs import Globs
from webhook.kube.resources import resource_named, versions_of
from webhook.kube.selectors import LabelSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date

    from webhook.policy.common import ExemptSpec, LabelSelectorSpec, MatchSpec
    from webhook.review import Request

SERVICE_ACCOUNT: Final = "system:serviceaccount:"

SAME_OBJECT: Final = frozenset({"", "approval", "ephemeralcontainers", "finalize", "resize", "status"})
"""Subresources that have the object of their resource, and its labels. The labels of others, of an Eviction, are what
the one who asks writes there; the options of a CONNECT have none."""


def compile_selector(spec: LabelSelectorSpec | None) -> LabelSelector | None:
    """A selector from its document; None: no restriction, as an empty one is."""
    if spec is None or not (spec.match_labels or spec.match_expressions):
        return None
    equal = ((key, "In", (value,)) for key, value in spec.match_labels.items())
    return LabelSelector([*equal, *((item.key, item.operator, item.values) for item in spec.match_expressions)])


def namespace_of(request: Request) -> str | None:
    """The namespace that the namespace parts ask about; None: the object is in none, and they do not restrict it.

    A Namespace is in itself, and the API server says so, unless it makes the name: then that is only the name of the
    request to validating webhooks, and before that nobody knows it.
    """
    if request.namespace:
        return request.namespace
    return request.name if is_namespace(request) else None


def is_namespace(request: Request) -> bool:
    """Is the request about a Namespace itself?"""
    return (request.resource.group, request.resource.resource) == ("", "namespaces")


def service_account(user: str) -> str:
    """A service account as ``namespace:name``; empty: the user is none."""
    account = user.removeprefix(SERVICE_ACCOUNT)
    return account if account != user and account.count(":") == 1 else ""


class Matcher:
    """The parts of ``match`` that the index does not answer: API versions, namespaces, selectors."""

    __slots__ = ("_exclude", "_include", "_namespace_selector", "_object_selector", "trivial")

    def __init__(self, spec: MatchSpec) -> None:
        self._include = Globs(spec.namespaces.include)
        self._exclude = Globs(spec.namespaces.exclude)
        self._namespace_selector = compile_selector(spec.namespace_selector)
        self._object_selector = compile_selector(spec.object_selector)
        self.trivial = not (self._include or self._exclude or self._namespace_selector or self._object_selector)

    def names(self, namespace: str) -> bool:
        """Does the policy name this very namespace? A glob does not."""
        return namespace in self._include.patterns

    def why_not_in(self, namespace: str) -> str:
        """Why the policy looks at nothing in a namespace of this name; empty where it may."""
        if self._include and not self._include.match(namespace):
            return f"match.namespaces.include does not name {_named(namespace)}"
        if self._exclude.match(namespace):
            return f"match.namespaces.exclude names {_named(namespace)}"
        return ""

    def could_select_with_others(self, namespace_labels: Mapping[str, str]) -> bool:
        """Does the policy look away from a namespace only for labels that it may have beside these?"""
        selector = self._namespace_selector
        return selector is not None and selector.could_match_with_others(namespace_labels)

    def why_not(
        self,
        namespace: str | None,
        namespace_labels: Callable[[], Mapping[str, str]] | None,
        labels: Callable[[], Iterable[Mapping[str, str]]],
    ) -> str:
        """Why the policy does not look at the object, in the words of the policy file; empty when it does.

        A cluster-scoped object has no namespace, and the namespace parts do not restrict it, as in Kubernetes.

        Args:
            namespace: of the request, as `namespace_of` says.
            namespace_labels: gives the labels of that namespace; None: they are not known, and not asked for.
            labels: gives the labels of the object, and of the old one.
        """
        if namespace is not None:
            if left_out := self.why_not_in(namespace):
                return left_out
            selector = self._namespace_selector
            if selector is not None and namespace_labels is not None and not selector.matches(namespace_labels()):
                return f"match.namespaceSelector does not select {_named(namespace)}"
        selector = self._object_selector
        if selector is not None and not any(selector.matches(each) for each in labels()):
            return "match.objectSelector does not select the object"
        return ""


class Exemption:
    """One entry of ``exempt``, or a document of kind Exemption.

    Args:
        spec: the entry.
        name: what it is called: ``exempt[0]``, or ``Exemption team-a``.
        place: where it is written: file and line.
    """

    __slots__ = (
        "_groups",
        "_names",
        "_namespaces",
        "_object_selector",
        "_service_accounts",
        "_users",
        "expires",
        "name",
        "place",
        "reason",
    )

    def __init__(self, spec: ExemptSpec, name: str, place: str) -> None:
        self._users = Globs(spec.users)
        self._groups = Globs(spec.groups)
        self._service_accounts = Globs(spec.service_accounts)
        self._namespaces = Globs(spec.namespaces)
        self._names = Globs(spec.names)
        self._object_selector = compile_selector(spec.object_selector)
        self.reason: str = spec.reason
        self.expires: date | None = spec.expires
        self.name = name
        self.place = place

    def __str__(self) -> str:
        return f"{self.reason} (until {self.expires})" if self.expires is not None else self.reason

    def is_for(self, namespace: str) -> bool:
        """May it let anything through in the namespace of this name?"""
        return not self._namespaces or self._namespaces.match(namespace)

    def failing(self, request: Request, labels: Callable[[], Iterable[Mapping[str, str]]], today: date) -> str:  # noqa: PLR0911 - one for each part
        """The first part of the entry that does not hold today, by its name in the policy file; empty: all do.

        An unknown user has no exemption by user, group or account, and an object without a name none by name.

        Args:
            request: who asks for what.
            labels: gives the labels of the object, and of the old one.
            today: in UTC.
        """
        if self.expires is not None and today > self.expires:
            return "expires"
        user = request.user_info.username
        if self._users and not (user and self._users.match(user)):
            return "users"
        if self._groups and not any(self._groups.match(group) for group in request.user_info.groups or ()):
            return "groups"
        if self._service_accounts and not (
            (account := service_account(user)) and self._service_accounts.match(account)
        ):
            return "serviceAccounts"
        if self._namespaces and not ((namespace := namespace_of(request)) and self._namespaces.match(namespace)):
            return "namespaces"
        if self._names and not (request.name and self._names.match(request.name)):
            return "names"
        # The object as it will be: one that loses the label loses the exemption with it.
        if self._object_selector is not None and not (
            request.sub_resource in SAME_OBJECT and self._object_selector.matches(next(iter(labels()), {}))
        ):
            return "objectSelector"
        return ""


def _named(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "a namespace without a name yet"


def resource_matches(pattern: str, path: str) -> bool:
    """Does a resource of a rule match ``pods`` or ``nodepools/scale``, or all that another such pattern matches?

    As in the API server: ``*`` leaves subresources out, and ``pods/*`` is Pods and all their subresources.

    Source: ``rules.Matcher`` in k8s.io/apiserver, pkg/admission/plugin/webhook/predicates/rules/rules.go
    """
    resource, _, subresource = pattern.partition("/")
    name, _, of_name = path.partition("/")
    return resource in {"*", name} and subresource in {"*", of_name}


class Naming(Protocol):
    """A resource rule, as it is written or compiled."""

    @property
    def api_groups(self) -> tuple[str, ...]:
        """With ``*`` for all."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Patterns, as `resource_matches` takes them."""


def is_named(rule: Naming, group: str, path: str) -> bool:
    """Does the rule name the resource, on whatever operation?"""
    in_group = group in rule.api_groups or "*" in rule.api_groups
    return in_group and any(resource_matches(pattern, path) for pattern in rule.resources)


def served_versions(versions: Sequence[str], group: str, path: str) -> list[str]:
    """Those of the versions in which the resource may be served; of a custom resource nobody knows: all."""
    resource = path.partition("/")[0]
    known = versions_of(group, resource) if resource_named(group, resource) is not None else None
    return [each for each in versions if not known or each in {"*", *known}]
