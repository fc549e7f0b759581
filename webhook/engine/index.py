"""Index compiled policies by phase, operation, group, and resource. A request that none matches costs one lookup.

No policy changes or denies anything in system namespaces.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.base.globs import Globs
from webhook.capacity.providers.provider import readers_by_resource
from webhook.kube.affinity import Tristate
from webhook.model.decision import Outcome
from webhook.model.review import OPERATIONS, Request
from webhook.policy.match import Exemption, Matcher, RequestAttributes, ResourceRule, is_namespace, namespace_of
from webhook.policy.precedence import ALONE, Standing
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.templates import Workload
    from webhook.rules.protocol import Mutator, PolicyKind, Validator

_CACHED_AT_MOST: Final = 4096
"""Entries of a cache: routes, and namespaces of a route. A cluster has a few hundred resources and a few thousand
namespaces. Further results are computed for each request."""


_NAME_AT_MOST: Final = 253
"""Characters of the longest name that Kubernetes accepts. Longer names aren't cached."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled policy.

    Attributes:
        enforcement: the strongest outcome of a finding.
        declared: the same without the mode of the cluster.
        rules: the resource rules; the rules in ``exclude`` are subtracted.
        matcher: the other parts of ``match``.
        exemptions: the policy's exemptions, then those of Exemption documents.
        break_glass: the groups that may turn a denial into a warning.
        controller_denies: also deny requests of built-in controllers.
        mutator: the rule, if it changes Pods.
        validator: the rule, if it emits violations.
        standing: the policies of its kind that it overrides, or shares Pods with by provider.
        claims: the providers that it names.
    """

    name: str
    kind: PolicyKind
    enforcement: Outcome
    rules: tuple[ResourceRule, ...]
    exclude: tuple[ResourceRule, ...]
    matcher: Matcher
    exemptions: tuple[Exemption, ...]
    break_glass: Globs
    controller_denies: bool
    mutator: Mutator | None
    validator: Validator | None
    declared: Outcome = Outcome.DENY
    standing: Standing = ALONE
    claims: tuple[str, ...] = ()

    def matches(self, operation: str, group: str, path: str) -> bool:
        """Return whether the policy may match requests of this kind. `why_not_request` compares the rest."""
        named = any(rule.names(operation, group, path) for rule in self.rules)
        return named and self.excluding(operation, group, path) is None

    def matches_templates(self) -> bool:
        """Return whether the policy may match Pods created from pod templates."""
        return self.matches(*_POD) and any(rule.names(*_POD) and not rule.mismatch(_TEMPLATE) for rule in self.rules)

    def judges_templates(self) -> bool:
        """Return whether the policy evaluates pod templates as Pods."""
        excluded = any(rule.names(*_POD) and not rule.mismatch(_TEMPLATE) for rule in self.exclude)
        return self.matches_templates() and not excluded

    def excluding(self, operation: str, group: str, path: str) -> int | None:
        """Return the index of the rule that excludes all requests of this kind, or None."""
        numbered = enumerate(self.exclude)
        return next((n for n, rule in numbered if rule.names(operation, group, path) and not rule.restricted), None)

    def within(self, namespace: str) -> Policy:
        """Return the policy without exemptions that apply only in other namespaces."""
        exemptions = tuple(exemption for exemption in self.exemptions if exemption.is_for(namespace))
        return self if len(exemptions) == len(self.exemptions) else replace(self, exemptions=exemptions)

    def why_not(self, operation: str, group: str, path: str) -> str:
        """Return the part of ``match`` that excludes requests of this kind, or an empty string if there is none."""
        if (number := self.excluding(operation, group, path)) is not None:
            return f"match.excludeResourceRules[{number}] names {path} on {operation}"
        others = [other for other in OPERATIONS if other != operation and self.matches(other, group, path)]
        if others and not self.matches(operation, group, path):
            return f"match.resourceRules names {path} on {', '.join(others)}, not on {operation}"
        return ""

    def why_not_request(self, request: Request, *, template: bool) -> str:
        """Return the rule that names the request's kind but excludes this request, or an empty string if all match.

        Args:
            request: the request.
            template: compare a pod template in the object, whose Pod has no name yet.
        """
        asked = ((request.operation, request.resource.group, request.path), RequestAttributes.of(request))
        kind, attributes = (_POD, _TEMPLATE) if template else asked
        mismatches = {number: rule.mismatch(attributes) for number, rule in enumerate(self.rules) if rule.names(*kind)}
        if mismatches and all(mismatches.values()):
            number, mismatch = next(iter(mismatches.items()))
            return f"match.resourceRules[{number}].{mismatch}"
        for number, rule in enumerate(self.exclude):
            for target, of_target in dict.fromkeys((asked, (kind, attributes))):
                if rule.excludes(target, of_target):
                    return f"match.excludeResourceRules[{number}] names this request for {target[2]}"
        return ""


_POD: Final = ("CREATE", "", "pods")
_WITH_TEMPLATES: Final = ("CREATE", "UPDATE")
_TEMPLATE: Final = RequestAttributes("v1", "", in_namespace=True)
"""The attributes of Pods created from a pod template. Their names are generated."""


class Route(msgspec.Struct, frozen=True):
    """The policies that apply to requests of one kind.

    Attributes:
        direct: the policies that match the object itself.
        projected: the policies that match its pod templates.
        workload: the paths of the pod templates.
        guards: the policies with ``breakGlass`` that match the object on any operation.
        fresh_pools: some of the policies need the node pools as the API server has them now.
        restricted: a policy names API versions, names, or a scope, so each request must be compared with its rules.
        expressions: expressions iterate over the object: a team's, or those of a node pool's reader.
        contested: some of the policies decide in place of others.
    """

    direct: tuple[Policy, ...]
    projected: tuple[Policy, ...]
    workload: Workload | None
    guards: tuple[Policy, ...]
    fresh_pools: bool
    restricted: bool
    expressions: bool
    contested: bool
    _within: dict[str, tuple[tuple[Policy, ...], tuple[Policy, ...]]] = {}

    def within(self, namespace: str) -> tuple[tuple[Policy, ...], tuple[Policy, ...]]:
        """Return the ``direct`` and ``projected`` policies whose ``match.namespaces`` admits the namespace.

        The result is cached, so policies and exemptions for other namespaces cost nothing.
        """
        if not namespace:
            return self.direct, self.projected
        policies = self._within.get(namespace)
        if policies is None:
            direct, projected = (
                tuple(policy.within(namespace) for policy in policies if not policy.matcher.why_not_in(namespace))
                for policies in (self.direct, self.projected)
            )
            policies = direct, projected
            if len(self._within) < _CACHED_AT_MOST and len(namespace) <= _NAME_AT_MOST:
                self._within[namespace] = policies
        return policies


SYSTEM_NAMESPACES: Final = ("kube-system", "kube-node-lease")
"""Namespaces that no policy affects: a webhook that blocks them would block the recovery of the cluster."""


class SystemNamespaces:
    """The namespaces of Kubernetes, of spotgate, and of the providers in use.

    Attributes:
        names: the namespaces of Kubernetes and spotgate.
    """

    def __init__(self, providers: Mapping[str, Provider], own_namespace: str) -> None:
        self.names = Globs((*SYSTEM_NAMESPACES, own_namespace))
        self._owners = [
            provider
            for provider in providers.values()
            if provider.system_namespaces.names or provider.system_namespaces.labels
        ]

    def contains(self, namespace: str, view: ClusterView) -> Tristate:
        """Return whether the namespace is a system namespace; unknown if it depends on node pools that are unknown."""
        if not namespace:
            return Tristate.NO
        if self.names.match(namespace):
            return Tristate.YES
        labels = view.namespaces.get(namespace) or {}
        owners = {provider.name for provider in self._owners if provider.owns_namespace(namespace, labels)}
        if not owners:
            return Tristate.NO
        if owners & view.providers:
            return Tristate.YES
        return Tristate.NO if view.pools is not None else Tristate.UNKNOWN

    def contains_object(self, request: Request, view: ClusterView) -> bool:
        """Return whether the object of a request is in a system namespace."""
        in_system = self.contains(namespace_of(request) or "", view) is Tristate.YES
        return in_system and not self.may_be_provider_namespace(request)

    def may_be_provider_namespace(self, request: Request) -> bool:
        """Return whether the object is a Namespace that can be a system namespace only as a provider's.

        Policies decide who can create these Namespaces, so the Namespace object itself is not exempt.
        """
        return is_namespace(request) and not self.names.match(namespace_of(request) or "")


class Index:
    """The policies of a bundle, indexed by the requests that they match."""

    def __init__(
        self,
        policies: Sequence[Policy],
        workloads: Iterable[Workload],
        providers: Mapping[str, Provider],
        own_namespace: str,
    ) -> None:
        self.policies = tuple(policies)
        self.workloads = {(workload.group, workload.resource): workload for workload in workloads}
        self.providers = providers
        self.system_namespaces = SystemNamespaces(providers, own_namespace)
        self.pools = frozenset(readers_by_resource(providers.values()))
        self._cached_route = lru_cache(maxsize=_CACHED_AT_MOST)(self._route)

    def route(self, phase: Phase, request: Request) -> Route | None:
        """Return the policies for this request, or None if no policy matches its kind."""
        return self.route_of(phase, request.operation, request.resource.group, request.path)

    def route_of(self, phase: Phase, operation: str, group: str, path: str) -> Route | None:
        """Return the policies for requests of this kind, or None if there are none.

        ``path`` is the resource, or the resource and its subresource (``pods/status``).
        """
        is_short = len(group) + len(path) <= 2 * _NAME_AT_MOST
        return (self._cached_route if is_short else self._route)(phase, operation, group, path)

    def left_out(self, request: Request) -> list[tuple[Policy, str]]:
        """Return the policies that match neither the request nor its pod templates, each with the reason.

        The reason names the field of the policy file, and is empty if the policy is for other kinds of objects. The
        trace records the reasons of the other policies.
        """
        phases = (self.route(phase, request) for phase in Phase)
        looking = {policy.name for route in phases if route for policy in (*route.direct, *route.projected)}
        group, path = request.resource.group, request.path
        return [
            (policy, policy.why_not(request.operation, group, path) or self._why_no_template(policy, request))
            for policy in self.policies
            if policy.name not in looking
        ]

    def _why_no_template(self, policy: Policy, request: Request) -> str:
        if (request.resource.group, request.path) not in self.workloads:
            return ""
        if policy.matches_templates() and request.operation not in _WITH_TEMPLATES:
            return f"pod templates are evaluated on {' and '.join(_WITH_TEMPLATES)}, not on {request.operation}"
        return policy.why_not(*_POD)

    def _route(self, phase: Phase, operation: str, group: str, path: str) -> Route | None:
        def is_able(policy: Policy) -> bool:
            return (policy.mutator if phase is Phase.MUTATE else policy.validator) is not None

        direct = tuple(policy for policy in self.policies if is_able(policy) and policy.matches(operation, group, path))
        workload = self.workloads.get((group, path)) if operation in _WITH_TEMPLATES else None
        projected = tuple(
            policy
            for policy in (self.policies if workload is not None else ())
            if policy.matches_templates()
            and policy.excluding(operation, group, path) is None
            and (phase is Phase.VALIDATE or is_able(policy))
        )
        writing = phase is Phase.VALIDATE and operation in _WITH_TEMPLATES and "/" not in path
        guards = tuple(
            policy
            for policy in (self.policies if writing else ())
            if policy.break_glass
            and is_able(policy)
            and (policy in projected or any(policy.matches(operation, group, path) for operation in OPERATIONS))
        )
        if not direct and not projected and not guards:
            return None
        chosen = (*direct, *projected)
        return Route(
            direct,
            projected,
            workload,
            guards,
            any(policy.kind.fresh_pools for policy in chosen),
            any(rule.restricted for policy in chosen for rule in (*policy.rules, *policy.exclude)),
            (group, path) in self.pools or any(policy.kind.expressions for policy in chosen),
            any(policy.standing is not ALONE for policy in chosen),
        )
