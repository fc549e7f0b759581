"""Which variables of `webhook.rules.validation` are null when, and which expressions never have a result then."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.cel.foresight import FAILING, Foreseen
from webhook.kube.resources import operations_on, resource_named
from webhook.policy.errors import SpecError, SpecErrors
from webhook.policy.match import is_named
from webhook.policy.never import Never
from webhook.review import OPERATIONS
from webhook.rules.protocol import Particulars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.cel import Expression
    from webhook.policy.common import MatchSpec, ResourceRuleSpec
    from webhook.rules.protocol import Facts, Subject


class Null(NamedTuple):
    """When a variable is null, why, and what else there is to do."""

    when: str
    why: str
    otherwise: str


_NO_NAMESPACE: Final = Null(
    "for cluster-scoped objects", "they are in no namespace", "or limit the policy with `scope: Namespaced`"
)


def _nulls(operation: str, *, in_namespace: bool) -> dict[str, Null]:
    nulls = {} if in_namespace else {"namespaceObject": _NO_NAMESPACE}
    if operation == "DELETE":
        nulls["object"] = Null("on DELETE", "there will be no object", "or read `oldObject`")
    elif operation != "UPDATE":
        nulls["oldObject"] = Null(f"on {operation}", "there is no old object", "or limit the policy to UPDATE")
    return nulls


def nulls_of(subject: Subject) -> Mapping[str, Null]:
    """What is null where this is judged."""
    return _nulls(subject.operation, in_namespace=Particulars.of(subject.request).in_namespace)


class _Situation(NamedTuple):
    """Requests that a policy looks at.

    Attributes:
        operation: of all of them.
        in_namespace: they are about objects in namespaces, or may be.
        resource: what else is known of them, as fields of ``request`` with their values.
    """

    operation: str
    in_namespace: bool
    resource: tuple[tuple[str, str], ...] = ()

    def comes_to(self, expression: Expression) -> Foreseen:
        """What an expression comes to there."""
        return expression.foresee(self.nulls, self._request)

    @property
    def _request(self) -> dict[str, str]:
        return {"request.operation": self.operation, **dict(self.resource)}

    @property
    def nulls(self) -> dict[str, Null]:
        """What is null there."""
        return _nulls(self.operation, in_namespace=self.in_namespace)

    def told(self, expression: Expression) -> tuple[str, Null]:
        """Of what is null there, what the expression reads a field of."""
        return next(each for each in self.nulls.items() if expression.foresee(each[:1], self._request) in FAILING)


def without_result(
    expressions: Mapping[tuple[str | int, ...], Expression], match: MatchSpec, facts: Facts
) -> Iterator[Never]:
    """The validations and conditions that read a field of what is null, and have no result there; false conditions.

    Raises:
        SpecErrors: those that have none in any request that the policy looks at.
    """
    judged = {path: each for path, each in expressions.items() if path[-1] == "expression" and path[0] != "variables"}
    conditions = {path: each for path, each in judged.items() if path[0] == "matchConditions"}
    named = list(_situations(match, facts))
    for path, condition in conditions.items():
        if named and all(each.comes_to(condition) is Foreseen.FALSE for each in named):
            text = "never matches: this condition is false on all that `match` names"
            yield Never(path, f"{text}; if that is meant, write `enforcement: off`")
    situations = [
        each
        for each in named
        if not any(each.comes_to(condition) is Foreseen.FALSE for condition in conditions.values())
    ]
    situations = list(dict.fromkeys(each._replace(resource=()) for each in situations))
    asking = any(map(_asks_for_the_namespace, conditions.values()))
    never: list[SpecError] = []
    for path, expression in judged.items():
        outcomes = {each: each.comes_to(expression) for each in situations}
        asked = asking or _asks_for_the_namespace(expression)
        reading = [each for each in situations if outcomes[each] in FAILING and (each.in_namespace or not asked)]
        failing = [each for each in reading if outcomes[each] is Foreseen.FAILS]
        told = dict(each.told(expression) for each in (failing or reading))
        nulls = " and ".join(f"`{name}` is null {null.when}" for name, null in told.items())
        if failing and len(failing) == len(situations):
            never.append(SpecError(path, f"never has a result: {nulls}, and the policy looks at nothing else"))
        elif failing:
            for name, null in told.items():
                text = f"never has a result {null.when}, where `{name}` is null, and is a finding each time"
                yield Never(path, f"{text}: write `{name} == null || ...`, {null.otherwise}")
        elif reading and len(reading) == len(situations):
            yield Never(path, f"reads what is never there: {nulls}, and the policy looks at nothing else")
    if never:
        raise SpecErrors(never)


def _asks_for_the_namespace(expression: Expression) -> bool:
    """Does it look whether there is one, as ``has(request.namespace)``?"""
    return not {("request", "namespace"), ("object", "metadata", "namespace")}.isdisjoint(expression.paths)


def _situations(match: MatchSpec, facts: Facts) -> Iterator[_Situation]:
    """The requests that `match` names, as far as that is known; those that may be in a namespace as if they were."""
    readers = [reader for provider in facts.providers.values() for reader in provider.readers]
    custom = {(each.group, each.resource): each.namespaced for each in readers}
    kinds = {(each.group, each.resource): each.kind for each in readers}
    kinds |= {(each.group, each.resource): each.kind for each in facts.workloads}
    for rule in match.resource_rules or ():
        for group, resource in product(rule.api_groups, rule.resources):
            plural, _, subresource = resource.partition("/")
            known = resource_named(group, plural)
            namespaced = known.namespaced if known is not None else custom.get((group, plural), True)
            asked = operations_on(group, subresource, plural) if "*" not in group + resource else None
            kind = known.kind if known is not None else kinds.get((group, plural), "")
            about = _about(group, plural, "" if subresource else kind) if "*" not in group + plural else ()
            for operation in OPERATIONS if "*" in rule.operations else rule.operations:
                situation = _Situation(operation, namespaced and rule.scope != "Cluster", about)
                if operation in (OPERATIONS if asked is None else asked) and not any(
                    _takes_out(each, situation, group, resource) for each in match.exclude_resource_rules
                ):
                    yield situation


def _about(group: str, plural: str, kind: str) -> tuple[tuple[str, str], ...]:
    """What a request about such a resource has; of a subresource the kind may be another."""
    of_kind = (("request.kind.group", group), ("request.kind.kind", kind)) if kind else ()
    return ("request.resource.group", group), ("request.resource.resource", plural), *of_kind


def _takes_out(rule: ResourceRuleSpec, situation: _Situation, group: str, resource: str) -> bool:
    """Does one of ``excludeResourceRules`` take out all such requests?"""
    whole = not rule.resource_names and "*" in rule.api_versions
    scopes = {"*", "Namespaced" if situation.in_namespace else "Cluster"}
    return (
        whole
        and rule.scope in scopes
        and not {situation.operation, "*"}.isdisjoint(rule.operations)
        and is_named(rule, group, resource)
    )
