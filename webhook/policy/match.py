"""Check a policy's ``match``, and decide whether it and ``exempt`` apply to a request."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.base.globs import Globs
from webhook.kube.affinity import LabelSelector, could_match_with_others, label_selector, matches
from webhook.kube.resources import resource_named, versions_of
from webhook.model.review import OPERATIONS
from webhook.policy.errors import SpecError, SpecErrors, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date

    from webhook.model.review import Request
    from webhook.policy.common import ExemptSpec, LabelSelectorSpec, MatchSpec, ResourceRuleSpec

SERVICE_ACCOUNT: Final = "system:serviceaccount:"

SAME_OBJECT: Final = frozenset({"", "approval", "ephemeralcontainers", "finalize", "resize", "status"})
"""Subresources whose requests carry the object itself, with its labels.

Others carry another object: an Eviction, whose labels the requester chooses, or the options of a CONNECT, which have
none.
"""


def compile_selector(spec: LabelSelectorSpec | None) -> LabelSelector | None:
    """Return the compiled label selector, or None for a missing or empty selector, which selects everything."""
    if spec is None or not (spec.match_labels or spec.match_expressions):
        return None
    expressions = ((item.key, item.operator, item.values) for item in spec.match_expressions)
    return label_selector(spec.match_labels, expressions)


def namespace_of(request: Request) -> str | None:
    """Return the namespace that a policy's namespace fields apply to, or None for cluster-scoped objects.

    For a Namespace object, this is its own name. The API server sets the request's namespace to it, except for a
    generated name (``generateName``): then validating webhooks get it only as the request's name, and mutating webhooks
    don't get it.
    """
    if request.namespace:
        return request.namespace
    return request.name if is_namespace(request) else None


def is_namespace(request: Request) -> bool:
    """Return whether the request is about a Namespace itself."""
    return (request.resource.group, request.resource.resource) == ("", "namespaces")


def service_account(user: str) -> str:
    """Return the user name of a service account as ``namespace:name``, or an empty string for other users."""
    account = user.removeprefix(SERVICE_ACCOUNT)
    return account if account != user and account.count(":") == 1 else ""


class Matcher:
    """The fields of ``match`` that the index doesn't evaluate: namespaces and selectors."""

    __slots__ = ("_exclude", "_include", "_namespace_selector", "_object_selector", "trivial")

    def __init__(self, spec: MatchSpec) -> None:
        self._include = Globs(spec.namespaces.include)
        self._exclude = Globs(spec.namespaces.exclude)
        self._namespace_selector = compile_selector(spec.namespace_selector)
        self._object_selector = compile_selector(spec.object_selector)
        self.trivial = not (self._include or self._exclude or self._namespace_selector or self._object_selector)

    def names(self, namespace: str) -> bool:
        """Return whether ``match`` includes this namespace by its exact name instead of a glob."""
        return namespace in self._include.patterns

    def why_not_in(self, namespace: str) -> str:
        """Return why the policy ignores a namespace with this name, or an empty string if it may apply."""
        if self._include and not self._include.match(namespace):
            return f"match.namespaces.include does not name {_named(namespace)}"
        if self._exclude.match(namespace):
            return f"match.namespaces.exclude names {_named(namespace)}"
        return ""

    def could_select_with_others(self, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether ``namespaceSelector`` could select the namespace if it had more labels than these."""
        selector = self._namespace_selector
        return selector is not None and could_match_with_others(selector, namespace_labels)

    def why_not(
        self,
        namespace: str | None,
        namespace_labels: Callable[[], Mapping[str, str]] | None,
        labels: Callable[[], Iterable[Mapping[str, str]]],
    ) -> str:
        """Return why the policy ignores the object, or an empty string if it applies.

        As in Kubernetes, the namespace fields don't restrict cluster-scoped objects.

        ``namespace`` is the result of `namespace_of`. ``namespace_labels`` returns the labels of the namespace, and is
        None if they are unknown. ``labels`` returns the labels of the object, and then those of the old object.
        """
        if namespace is not None:
            if left_out := self.why_not_in(namespace):
                return left_out
            selector = self._namespace_selector
            if selector is not None and namespace_labels is not None and not matches(selector, namespace_labels()):
                return f"match.namespaceSelector does not select {_named(namespace)}"
        selector = self._object_selector
        if selector is not None and not any(matches(selector, object_labels) for object_labels in labels()):
            return "match.objectSelector does not select the object"
        return ""


_VALUES_OF: Final[Mapping[str, Callable[[Request], Iterable[str | None]]]] = {
    "users": lambda request: (request.user_info.username,),
    "groups": lambda request: request.user_info.groups or (),
    "serviceAccounts": lambda request: (service_account(request.user_info.username),),
    "namespaces": lambda request: (namespace_of(request),),
    "names": lambda request: (request.name,),
}
"""The values of a request by field of an exemption. At least one value must match the field."""


class Exemption:
    """One entry of ``exempt``, or one Exemption document.

    ``name`` is for messages (``exempt[0]``, ``Exemption team-a``), ``place`` is the file and line.
    """

    __slots__ = ("_globs", "_object_selector", "expires", "name", "place", "reason")

    def __init__(self, spec: ExemptSpec, name: str, place: str) -> None:
        fields = dict(zip(spec.__struct_encode_fields__, msgspec.structs.astuple(spec), strict=True))
        self._globs = {part: Globs(fields[part]) for part in _VALUES_OF if fields[part]}
        self._object_selector = compile_selector(spec.object_selector)
        self.reason: str = spec.reason
        self.expires: date | None = spec.expires
        self.name = name
        self.place = place

    def __str__(self) -> str:
        return f"{self.reason} (until {self.expires})" if self.expires is not None else self.reason

    @property
    def sentence(self) -> str:
        """Return the sentence for the trace and the audit annotations of an exempt request."""
        return f"exempt: {self}, by {self.name} at {self.place}"

    def is_for(self, namespace: str) -> bool:
        """Return whether the exemption can apply in a namespace with this name."""
        return "namespaces" not in self._globs or self._globs["namespaces"].match(namespace)

    def failing(self, request: Request, labels: Callable[[], Iterable[Mapping[str, str]]], today: date) -> str:
        """Return the first field that the request doesn't satisfy, or an empty string if it satisfies all fields.

        An unknown user satisfies no field about users, groups, or service accounts. An object without a name satisfies
        no field about names.

        ``labels`` returns the labels of the object, and then those of the old object. ``today`` is in UTC.
        """
        if self.expires is not None and today > self.expires:
            return "expires"
        for part, globs in self._globs.items():
            if not any(value and globs.match(value) for value in _VALUES_OF[part](request)):
                return part
        # Select by the new labels: an update that removes the label also ends the exemption.
        if self._object_selector is not None and not (
            request.sub_resource in SAME_OBJECT and matches(self._object_selector, next(iter(labels()), {}))
        ):
            return "objectSelector"
        return ""


def _named(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "a namespace without a name yet"


def resource_matches(pattern: str, path: str) -> bool:
    """Return whether a rule's resource pattern matches a resource, or everything that another pattern matches.

    As in the API server, ``*`` does not match subresources, and ``pods/*`` matches Pods and all their subresources.

    Source: ``rules.Matcher`` in k8s.io/apiserver, pkg/admission/plugin/webhook/predicates/rules/rules.go
    """
    resource, _, subresource = pattern.partition("/")
    name, _, of_name = path.partition("/")
    return resource in {"*", name} and subresource in {"*", of_name}


def is_named(rule: ResourceRule | ResourceRuleSpec, group: str, path: str) -> bool:
    """Return whether the rule matches the resource for any operation."""
    in_group = group in rule.api_groups or "*" in rule.api_groups
    return in_group and any(resource_matches(pattern, path) for pattern in rule.resources)


def served_versions(versions: Sequence[str], group: str, path: str) -> list[str]:
    """Return the versions that may serve the resource, or all versions for a custom resource."""
    resource = path.partition("/")[0]
    known = versions_of(group, resource) if resource_named(group, resource) is not None else None
    return [version for version in versions if not known or version in {"*", *known}]


class RequestAttributes(NamedTuple):
    """The attributes of a request that rules can restrict, in addition to operation, group, and resource."""

    version: str
    name: str
    in_namespace: bool

    @classmethod
    def of(cls, request: Request) -> RequestAttributes:
        """Return the attributes of a request. A Namespace is cluster-scoped, although its request has a namespace."""
        in_namespace = bool(request.namespace) and not is_namespace(request)
        return cls(request.resource.version, request.name, in_namespace)


class ResourceRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``resourceRules``, as in a ValidatingAdmissionPolicy. ``*`` means all."""

    api_groups: tuple[str, ...]
    api_versions: tuple[str, ...] = ("*",)
    operations: tuple[str, ...]
    resources: tuple[str, ...]
    scope: str = "*"
    resource_names: tuple[str, ...] = ()

    def names(self, operation: str, group: str, path: str) -> bool:
        """Return whether the rule names the operation and the resource. `mismatch` compares the other attributes."""
        return (operation in self.operations or "*" in self.operations) and is_named(self, group, path)

    @property
    def restricted(self) -> bool:
        """Return whether the rule restricts versions, names, or scope."""
        return self.api_versions != ("*",) or bool(self.resource_names) or self.scope != "*"

    def mismatch(self, attributes: RequestAttributes) -> str:
        """Return the field of the rule that doesn't match the request, or an empty string if all fields match."""
        if "*" not in self.api_versions and attributes.version not in self.api_versions:
            return f"apiVersions does not name {attributes.version}"
        if self.resource_names and attributes.name not in self.resource_names:
            return f"resourceNames does not name {attributes.name or 'an object without a name yet'}"
        if self.scope == "Cluster" and attributes.in_namespace:
            return "scope is Cluster, and it is in a namespace"
        if self.scope == "Namespaced" and not attributes.in_namespace:
            return "scope is Namespaced, and it is cluster-scoped"
        return ""

    def excludes(self, kind: tuple[str, str, str], request: RequestAttributes) -> bool:
        """Return whether the rule excludes the request as an entry of ``excludeResourceRules``.

        A rule that names a version of the resource excludes requests in all its versions, like the API server with
        ``matchPolicy: Equivalent``.

        ``kind`` is the operation, the API group, and the resource with its subresource.
        """
        if not self.names(*kind):
            return False
        if request.version not in self.api_versions and (served := served_versions(self.api_versions, *kind[1:])):
            request = request._replace(version=served[0])
        return not self.mismatch(request)


def rules_for(resources: Iterable[tuple[str, str]], *operations: str) -> tuple[ResourceRule, ...]:
    """Return a rule for each resource, which is an API group and a plural name."""
    rules = (ResourceRule(api_groups=(group,), resources=(name,), operations=operations) for group, name in resources)
    return tuple(rules)


def expect_judged(match: MatchSpec, rules: Sequence[ResourceRule], what: str) -> None:
    """Raise SpecErrors if ``match`` names a resource or an operation that the policy kind doesn't evaluate.

    ``rules`` lists all resources that the kind evaluates, without wildcards; ``what`` is a phrase for them.
    """
    known = [(of, rule.operations) for rule in rules for of in product(rule.api_groups, rule.resources)]
    mistakes: list[SpecError] = []
    for number, rule in enumerate(match.resource_rules or ()):
        for place, path in enumerate(rule.resources):
            written = ResourceRule(api_groups=rule.api_groups, resources=(path,), operations=())
            named = " or ".join(f"{path} of {group or 'the core group'}" for group in rule.api_groups)
            possible = {word for of, operations in known if is_named(written, *of) for word in operations}
            if not possible:
                hint = did_you_mean(named, [f"{resource} of {group}" for (group, resource), _ in known])
                text = f"this kind doesn't evaluate {named}{hint}; it evaluates {what}"
            elif possible.isdisjoint(rule.operations) and "*" not in rule.operations:
                allowed = ", ".join(word for word in OPERATIONS if word in possible)
                text = f"this kind evaluates {named} only on {allowed}"
            else:
                continue
            mistakes.append(SpecError(("match", "resourceRules", number, "resources", place), text))
    if mistakes:
        raise SpecErrors(mistakes)


PODS_CREATE: Final = ResourceRule(api_groups=("",), resources=("pods",), operations=("CREATE",))
