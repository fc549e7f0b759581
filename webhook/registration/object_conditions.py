"""Write the ``matchConditions`` of the webhooks for all resources except node pools.

They are true for every object that may concern a policy, and for some others. CEL can't search untyped templates within
its budget, so the API server calls the webhook for each custom workload that is created or whose spec changes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.supply import EVERY_NODE_HAS
from webhook.policy.terms import BREAK_GLASS
from webhook.registration import cel
from webhook.registration.matched_resources import MatchedResource, ResourceKey, matched_resources
from webhook.rules.context import Phase
from webhook.rules.protocol import NOTHING, Concern, Keys, concern_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.kube.templates import Workload
    from webhook.policy.common import LabelSelectorSpec

BUILT_IN: Final = frozenset({"", "apps", "batch"})
"""API groups with typed objects: the API server rejects invalid ones before it calls a webhook."""
ITEMS_AT_MOST: Final = 16
"""Items of a list that are tested one by one."""
TEXT_LENGTH_AT_MOST: Final = 256
"""Characters of an image, or of the key of a toleration, to test. An image with a digest has 150."""

_PODS: Final = ("", "pods")
_OUTDATED: Final = ("beta.", "failure-domain.", "node.kubernetes.io/windows")
_BY_DEFAULT: Final = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
"""Taints that every Pod tolerates: the API server adds the tolerations."""


class ObjectConditions:
    """The match conditions of one phase."""

    def __init__(
        self, bundle: Bundle, phase: Phase, matched: Mapping[ResourceKey, MatchedResource], also: Concern = NOTHING
    ) -> None:
        self._mutate = phase is Phase.MUTATE
        self._neutral = cel.literal(neutral_keys(bundle.providers.values()))
        self._matched = matched
        self._workloads = [workload for key, workload in bundle.index.workloads.items() if key in matched]
        self._selectors = {doc.name: doc.spec.match.object_selector for doc in bundle.documents if doc.is_policy}
        self._concern = self._whole_concern() | also
        self._of_controllers: ObjectConditions | None = None
        if self._mutate and bundle.warns_controllers:
            pods = {_PODS: matched_resources(bundle, Phase.VALIDATE)[_PODS]}
            self._of_controllers = ObjectConditions(bundle, Phase.VALIDATE, pods, self._concern)

    @property
    def tell_spot_namespaces(self) -> bool:
        """Return whether every Pod in a namespace with a capacity label concerns a policy."""
        also = self._of_controllers
        return self._concern.in_spot_namespaces or (also is not None and also.tell_spot_namespaces)

    def of(self, *, any_object: bool = False) -> list[dict[str, str]]:
        """Return the conditions. With ``any_object``, every new or changed object concerns the webhook."""
        always = list(self._always())
        expressions: dict[str, list[str]] = {}
        if any("UPDATE" in resource.operations for resource in self._matched.values()):
            expressions["changes"] = [*always, *self._changes()]
        if not any_object and not self._concern.everything:
            expressions["concerns"] = self.needed()
            if self._of_controllers is not None:  # the same call validates these Pods
                both = cel.block(f"{cel.CONTROLLERS_POD} ? (", [*always, *self._of_controllers.needed()])
                expressions["concerns"] = [f"{both} : {cel.block('(', self.needed())}"]
        return [{"name": name, "expression": cel.any_of(lines)} for name, lines in expressions.items()]

    def needed(self) -> list[str]:
        """Return expressions that are true for objects that may concern a policy."""
        return ["true"] if self._concern.everything else [*self._always(), *self._concerns()]

    def for_everything(self, key: ResourceKey) -> Iterator[str]:
        """Yield the names of policies that any object of this resource may concern."""
        matched = self._matched[key]
        for name, policy in (matched.direct | matched.projected).items():
            if self._concern_of([policy], key).everything:
                yield name

    def _concern_of(self, policies: Iterable[Policy], key: ResourceKey) -> Concern:
        rules = (policy.mutator if self._mutate else policy.validator or policy.mutator for policy in policies)
        return concern_of(rules, *key)

    def _whole_concern(self) -> Concern:
        """Return the concern of all policies, except those for which the webhook is always called."""
        concern = NOTHING
        for key, matched in self._matched.items():
            narrow = [policy for policy in matched.direct.values() if not self._concern_of([policy], key).everything]
            concern |= self._concern_of([*narrow, *matched.projected.values()], key)
            concern |= Concern(annotations=Keys(frozenset({BREAK_GLASS}))) if matched.guarded else NOTHING
        return concern

    def _always(self) -> Iterator[str]:
        """Yield expressions that are true for objects that always need the webhook."""
        whole: list[ResourceKey] = []
        for key, matched in self._matched.items():
            selectors = [self._selectors.get(name) for name in self.for_everything(key) if name in matched.direct]
            if "*" in "".join(key) or not all(selectors):
                whole.append(key)
            for selector in filter(None, selectors):
                yield f"{cel.REFERENCE} == {cel.quoted(cel.reference(*key))} && ({_selects(selector)})"
        if whole:
            others = [cel.reference(*key) for key in self._matched if key not in whole]
            yield f"!({cel.REFERENCE} in {cel.literal(others)})"

    def _changes(self) -> Iterator[str]:
        """Yield expressions that are true unless the request is an UPDATE that changes nothing of concern."""
        yield "request.operation != 'UPDATE' || object == null || oldObject == null"
        yield "object.?metadata.?labels != oldObject.?metadata.?labels"
        yield from cel.changes_annotations(self._concern.annotations)
        resources = {_name(workload): [path.segments[0] for path in workload.paths] for workload in self._workloads}
        if _PODS in self._matched:
            resources["/pods"] = ["spec"]
        if resources:
            roots = sorted(set(chain.from_iterable(resources.values())))
            differ = (f"object.?{root} != oldObject.?{root}" for root in roots)
            yield cel.block(f"{cel.RESOURCE} in {cel.literal(sorted(resources))} && (", differ)

    def _concerns(self) -> Iterator[str]:
        """Yield expressions that are true if an object may concern a policy."""
        yield "object == null"
        yield from _metadata(self._concern, "object")
        built_in = {_name(workload): places for workload in self._workloads if (places := _places(workload))}
        if custom := sorted(_name(workload) for workload in self._workloads if _name(workload) not in built_in):
            yield f"{cel.RESOURCE} in {cel.literal(custom)}"
        if _PODS in self._matched:
            built_in["/pods"] = ["object"]
        if built_in:
            pods = ", ".join(dict.fromkeys(chain.from_iterable(built_in.values())))
            search = f"{cel.RESOURCE} in {cel.literal(sorted(built_in))} && [{pods}].exists(pod,"
            yield cel.block(search, self._of_pod(self._concern))

    def _of_pod(self, concern: Concern) -> Iterator[str]:
        """Yield expressions about the ``pod``. They also run on a workload, which has none of these fields."""
        yield from _metadata(concern, "pod")
        if concern.selectors:
            yield from self._selectors_of_pod()
        if concern.tolerations:
            key = "toleration.?key.orValue('')"
            one_of = f"!({key} in {cel.literal(_BY_DEFAULT)}) && ({_text(key, concern.tolerations)})"
            yield from _list_has("pod.?spec.?tolerations", "toleration", one_of)
        if concern.images:
            one_of = _text("container.?image.orValue('')", Keys(containing=concern.images))
            yield from _list_has("pod.?spec.?containers", "container", one_of)
        if concern.gates:
            one_of = f"gate.?name.orValue('') in {cel.literal(sorted(concern.gates))}"
            yield from _list_has("pod.?spec.?schedulingGates", "gate", one_of)
        if concern.node_name:
            created = f"({cel.RESOURCE} != '/pods' || request.operation == 'CREATE')"
            yield f"{created} && pod.?spec.?nodeName.orValue('') != ''"

    def _selectors_of_pod(self) -> Iterator[str]:
        selector = "pod.?spec.?nodeSelector.orValue({})"
        yield f"{selector}.size() > {cel.MEMBERS_AT_MOST}"
        yield f"{selector}.exists(key, !(key in {self._neutral}))"
        affinity = "pod.?spec.?affinity.?nodeAffinity"
        preferred = f"{affinity}.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"
        yield f"type({preferred}) != list || {preferred}.size() > 0"
        requirement = f"!(requirement.?key.orValue('') in {self._neutral})"
        has_requirement = cel.any_of(_list_has("term.?matchExpressions", "requirement", requirement))
        terms = f"{affinity}.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms"
        yield from _list_has(terms, "term", has_requirement)


def _metadata(concern: Concern, of: str) -> Iterator[str]:
    """Yield expressions about labels and annotations, which are maps of strings in every object."""
    yield from cel.has_keys(f"{of}.?metadata.?labels.orValue({{}})", concern.labels)
    yield from cel.has_keys(f"{of}.?metadata.?annotations.orValue({{}})", concern.annotations)


def _list_has(place: str, item: str, test: str) -> Iterator[str]:
    """Yield expressions that are true if an item of a list passes the test, or the list can't be searched.

    The API server passes some empty lists as null before it rejects them.
    """
    items = f"{place}.orValue([])"
    yield f"type({items}) != list || {items}.size() > {ITEMS_AT_MOST}"
    yield f"{items}.exists({item}, {test})"


def _text(value: str, keys: Keys) -> str:
    """Return an expression that is true if a text is one of the keys or contains one."""
    tests = [f"{value} in {cel.literal(sorted(keys.exact))}"] if keys.exact else []
    if keys.containing:
        tests.append(cel.contains_any(value, keys.containing, TEXT_LENGTH_AT_MOST))
    return " || ".join(tests)


def neutral_keys(providers: Iterable[Provider]) -> list[str]:
    """Return the keys of node labels that don't distinguish spot nodes for any of the providers.

    To keep expressions short, omit deprecated keys: the webhook is called for Pods that use them.
    """
    telling = {
        key
        for provider in providers
        for key in (provider.pool_name_label, *(label.key for label in provider.spot_node_labels))
    }
    return sorted(key for key in EVERY_NODE_HAS - telling if not key.startswith(_OUTDATED))


def _places(workload: Workload) -> list[str]:
    """Return the paths of the pod templates and of other templates with labels; empty if they can't be searched."""
    paths = [path.text for path in workload.paths]
    paths += [labels.path.text.removesuffix(".metadata.labels") for labels in workload.labels]
    plain = not any(path.layout for path in workload.paths) and not any(path.endswith("labels") for path in paths)
    if workload.group not in BUILT_IN or not plain or "*" in "".join(paths):
        return []
    return ["?object" + "".join(f".?{name}" for name in path.split(".")) for path in paths]


def _name(workload: Workload) -> str:
    return f"{workload.group}/{workload.resource}"


def _selects(selector: LabelSelectorSpec) -> str:
    objects = ("(object == null ? oldObject : object)", "(oldObject == null ? object : oldObject)")
    return " || ".join(f"({cel.selects(selector, f'{text}.?metadata.?labels.orValue({{}})')})" for text in objects)
