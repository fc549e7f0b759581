"""Choose the ``matchConditions`` of the webhooks about everything but node pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.policy.terms import BREAK_GLASS
from webhook.registration.cel import literal, quoted, selects
from webhook.registration.conditions import (
    RESOURCE,
    ConcernExpressions,
    any_of,
    block,
    changed_metadata,
    changed_templates,
)
from webhook.rules.concern import NOTHING, Concern, Keys, concern_of
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.policy.common import LabelSelectorSpec
    from webhook.registration.matched_resources import MatchedResource, ResourceKey

Condition = dict[str, str]

PODS: Final = ("", "pods")
_BREAK_GLASS: Final = Concern(annotations=Keys(frozenset({BREAK_GLASS})))
_SUBRESOURCE: Final = "request.?subResource.orValue('')"
_IS_POD: Final = f"{RESOURCE} == '/pods' && {_SUBRESOURCE} == ''"
_NEW: Final = "(object == null ? oldObject : object)"
_OLD: Final = "(oldObject == null ? object : oldObject)"
_NOT_UPDATED: Final = "request.operation != 'UPDATE' || oldObject == null"


class ObjectConditions:
    """Hold the conditions of one phase."""

    def __init__(
        self, bundle: Bundle, phase: Phase, neutral: list[str], matched: Mapping[ResourceKey, MatchedResource]
    ) -> None:
        self._mutate = phase is Phase.MUTATE
        self._neutral = neutral
        self._matched = matched
        self._pods = matched.get(PODS)
        self._others = {key: each for key, each in matched.items() if key != PODS}
        self._workloads = [each for key, each in bundle.index.workloads.items() if key in self._others]
        self._selectors = {each.name: each.spec.match.object_selector for each in bundle.documents if each.is_policy}

    def of(self, *, in_spot_namespace: bool = False) -> list[Condition]:
        """Return the conditions.

        In a namespace with a capacity label every Pod may be one that targets spot.
        """
        found: list[Condition] = []
        if self._pods is not None and (text := self._of_pods(self._pods, in_spot=in_spot_namespace)):
            found.append({"name": "pods", "expression": text})
        if self._others:
            unless = [_IS_POD] if self._pods is not None else []
            unless += self._always()
            found.append({"name": "changes", "expression": any_of([*unless, *self._changed()])})
            concern = self._concern_of_others()
            if not (in_spot_namespace and concern.in_spot_namespaces):
                found.append(
                    {"name": "concerns", "expression": any_of([*unless, "object == null", *self._concerns(concern)])}
                )
        return found

    def tell_spot_namespaces(self) -> bool:
        """Return whether every Pod in a namespace with a capacity label concerns a policy."""
        return any(
            self._concern(policies.values(), key).in_spot_namespaces
            for key, each in self._matched.items()
            for policies in (each.direct, each.projected)
        )

    def for_everything(self, key: ResourceKey) -> Iterator[str]:
        """Yield the names of policies that do not say which of these objects concern them."""
        matched = self._matched[key]
        for name, policy in (matched.direct | matched.projected).items():
            if self._concern([policy], key).everything:
                yield name

    def _concern(self, policies: Iterable[Policy], key: ResourceKey) -> Concern:
        rules = (policy.mutator if self._mutate else policy.validator or policy.mutator for policy in policies)
        return concern_of(rules, *key)

    def _of_pods(self, matched: MatchedResource, *, in_spot: bool) -> str:
        """Return the expression for Pods; empty if the webhook is called for all."""
        concern = self._concern(matched.direct.values(), PODS) | (_BREAK_GLASS if matched.guarded else NOTHING)
        if self._mutate:
            concern = replace(concern, node_name=False)  # it is warned of
        every_new = in_spot and concern.in_spot_namespaces
        if concern.everything or (every_new and matched.operations == {"CREATE"}):
            return ""
        concerns = block("(", ConcernExpressions(concern, self._neutral, typed=True).pod("object"))
        text = f"object == null || {concerns}"
        if "UPDATE" in matched.operations:
            fields = (f"object.?spec.?{name} != oldObject.?spec.?{name}" for name in sorted(concern.changes))
            changed = block("(", [_NOT_UPDATED, *changed_metadata(concern), *fields])
            text = f"object == null || {changed} && {concerns}"
        if every_new:
            text = f"request.operation == 'CREATE' || {text}"
        return f"!({_IS_POD}) || {text}" if self._others else text

    def _always(self) -> list[str]:
        """Return expressions for objects for which the webhook is always called."""
        whole: list[ResourceKey] = []
        narrow: list[str] = []
        for key in self._others:
            direct = self._matched[key].direct
            wide = [direct[name] for name in self.for_everything(key) if name in direct]
            selectors = [self._selectors.get(policy.name) for policy in wide]
            if "*" in "".join(key) or not all(selectors):
                whole.append(key)
            here = f"{RESOURCE} + '/' + {_SUBRESOURCE} == {quoted(_reference(*key))}"
            narrow += [f"{here} && ({_selects(each)})" for each in selectors if each is not None]
        if not whole:
            return narrow
        known = [_reference(*key) for key in self._others if key not in whole]
        return [f"!({RESOURCE} + '/' + {_SUBRESOURCE} in {literal(known)})", *narrow]

    def _concern_of_others(self) -> Concern:
        found = NOTHING
        for key, each in self._others.items():
            narrow = [policy for policy in each.direct.values() if not self._concern([policy], key).everything]
            found |= self._concern(narrow, key) | self._concern(each.projected.values(), key)
            found |= _BREAK_GLASS if each.guarded else NOTHING
        return found

    def _changed(self) -> Iterator[str]:
        """Yield expressions that are true if an UPDATE changes what may concern a policy."""
        yield _NOT_UPDATED
        yield "object == null"
        yield from changed_metadata(self._concern_of_others())
        projected = (policy for each in self._others.values() for policy in each.projected.values())
        counting = any(policy.kind.counts_replicas for policy in projected)
        yield from changed_templates(self._workloads, counting=counting)

    def _concerns(self, concern: Concern) -> Iterator[str]:
        """Yield expressions that are true if an object may concern a policy."""
        expressions = ConcernExpressions(concern, self._neutral, typed=False)
        if concern.everything:  # of a template: a policy about Pods looks at each
            yield "true"
            return
        for text in map(quoted, sorted(concern.names)):
            names = (f"object.?metadata.?{each}.orValue('').startsWith({text})" for each in ("name", "generateName"))
            yield f"request.operation == 'CREATE' && ({' || '.join(names)})"
        yield from ConcernExpressions(concern, self._neutral, typed=True).metadata()
        if self._workloads:
            yield from expressions.templates(self._workloads)


def _reference(group: str, path: str) -> str:
    resource, _, subresource = path.partition("/")
    return f"{group}/{resource}/{subresource}"


def _selects(selector: LabelSelectorSpec) -> str:
    either = (selects(selector, f"{each}.?metadata.?labels.orValue({{}})") for each in (_NEW, _OLD))
    return " || ".join(f"({each})" for each in either)
