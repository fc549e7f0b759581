"""Write ``matchConditions`` about Pods, workloads and other objects: true for what may concern a policy.

The API server skips a webhook with failurePolicy Ignore where a condition fails or costs too much, so none may:

- a member is read with ``.?``, and its type is tested first in a custom resource: the webhook is called for others;
- the webhook is called for large maps and long keys before they are searched: the cost of `contains` is the length.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions;
    k8s.io/apiserver, pkg/apis/cel/config.go (1,000,000 for an expression, 2,500,000 for all of a webhook)
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from webhook.capacity.placement.supply import EVERY_NODE_HAS
from webhook.registration.cel import literal, quoted
from webhook.rules.concern import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.kube.layouts import Steps
    from webhook.kube.templates import TemplatePath, Workload
    from webhook.rules.concern import Concern

ITEMS_AT_MOST: Final = 16
"""Items of a list, and templates in the lists of an object: one costs 25,000 at most, and an object has no more than
ten others. The largest RayClusters have some ten worker groups."""

_Parts: TypeAlias = "tuple[Steps | None, Steps | None]"
"""Where the metadata and the spec stand; None: nowhere."""


class TemplatePlaces(msgspec.Struct, frozen=True):
    """Hold the places of maps in an object, as CEL: items of a list, each a map, and lists of maps.

    Attributes:
        guards: expressions that are true if an object can't be searched there.
        sizes: the lists and maps of the object from which ``several`` come.
    """

    guards: tuple[str, ...]
    alone: tuple[str, ...] = ()
    several: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


def places_of(path: TemplatePath) -> Iterator[TemplatePlaces]:
    """Yield the places of the maps at a path that leads through one list or map at most.

    A Pod that is put together stands in several: each of its parts is one map, with ``metadata`` and ``spec``.
    """
    steps, wild, inner = path.divided()
    layout = path.layout
    own = None if layout is None else (layout.metadata, layout.spec)
    if wild:
        yield _several(steps, inner, own, is_list=wild == "[*]")
    elif own is None:
        yield TemplatePlaces(tuple(not_maps("object", *steps)), alone=(f"?{_member('object', steps)}",))
    else:
        yield _part(steps, own)
    for source in layout.inherits if layout is not None else ():
        yield _part((), (source.metadata, source.spec))


def not_maps(of: str, *names: str) -> Iterator[str]:
    """Yield, for each step of a path, an expression that is true if it is no map."""
    for end in range(1, len(names) + 1):
        yield f"type({_member(of, names[:end])}.orValue({{}})) != map"


def _part(steps: Sequence[str], own: _Parts) -> TemplatePlaces:
    value, guards = _put_together("object", steps, own)
    return TemplatePlaces(tuple(guards), alone=(value,))


def _several(names: Sequence[str], inner: Sequence[str], own: _Parts | None, *, is_list: bool) -> TemplatePlaces:
    kind, empty = ("list", "[]") if is_list else ("map", "{}")
    items = f"{_member('object', names)}.orValue({empty})"
    item = "item" if is_list else f"{items}[item]"
    if own is None:
        value, unfit = _or_empty(item, inner), list(not_maps(item, *inner))
    else:
        value, unfit = _put_together(item, inner, own)
    guards = (
        *not_maps("object", *names[:-1]),
        f"type({items}) != {kind}",
        f"{items}.size() > {ITEMS_AT_MOST}",
        f"{items}.exists(item, {' || '.join([f'type({item}) != map', *unfit])})",
    )
    return TemplatePlaces(guards, several=(f"{items}.map(item, {value})",), sizes=(items,))


def _put_together(of: str, steps: Sequence[str], own: _Parts) -> tuple[str, list[str]]:
    """Return a map of the metadata and the spec that stand below these steps, and what is true if it can't be made."""
    metadata, spec = ([*steps, *map(str, each)] if each is not None else None for each in own)
    members = [("metadata", metadata), ("spec", spec)]
    found = ", ".join(f"'{key}': {_or_empty(of, path)}" for key, path in members if path is not None)
    return f"dyn({{{found}}})", [guard for _, path in members if path is not None for guard in not_maps(of, *path)]


def _member(of: str, names: Sequence[str]) -> str:
    return "".join((of, *(f".?{each}" for each in names)))


def _or_empty(of: str, names: Sequence[str]) -> str:
    return f"{_member(of, names)}.orValue({{}})" if names else of


MEMBERS_AT_MOST: Final = 64
"""Members of a map that are tested one by one. People write a dozen; a key costs some 120, so a map 8,000."""
KEY_LENGTH_AT_MOST: Final = 128
"""Characters of a key that is tested. Kubernetes takes 317, and people write some 40."""
TEXT_LENGTH_AT_MOST: Final = 256
"""Characters of an image, or of the key of a toleration, that are tested. An image with a digest has 150."""
BUILT_IN: Final = frozenset({"", "apps", "batch"})
"""API groups whose objects have the types of their fields: the API server rejects others before it calls a webhook."""

RESOURCE: Final = "request.resource.group + '/' + request.resource.resource"

_OUTDATED: Final = ("beta.", "failure-domain.", "node.kubernetes.io/windows")
_BY_DEFAULT: Final = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
"""Taints that every Pod tolerates: the API server adds that."""


def any_of(lines: Iterable[str]) -> str:
    """Join expressions by ``||``, a line for each."""
    return " ||\n".join(lines)


def block(before: str, lines: Iterable[str]) -> str:
    """Join expressions by ``||`` and close a bracket that ``before`` has opened."""
    return f"{before}\n{indent(any_of(lines), '  ')}\n)"


def neutral_keys(providers: Iterable[Provider]) -> list[str]:
    """Return keys of node labels that say nothing about spot, for any of the providers.

    Outdated keys are left out, to keep expressions short: the webhook is called for a Pod with one.
    """
    telling = {
        key for each in providers for key in (each.pool_name_label, *(label.key for label in each.spot_node_labels))
    }
    return sorted(key for key in EVERY_NODE_HAS - telling if not key.startswith(_OUTDATED))


def keys_in(found: str, keys: Keys, *, also: str = "", at_most: int = MEMBERS_AT_MOST) -> Iterator[str]:
    """Yield expressions that are true if a map of strings has one of the keys.

    ``also`` must hold for the ``key``, too. A map with more members than ``at_most`` counts as having a key.
    """
    one_by_one = [f"key.contains({quoted(text)})" for text in sorted(keys.containing)]
    exact = sorted(key for key in keys.exact if not any(text in key for text in keys.containing))
    if also and exact:
        one_by_one.insert(0, f"key in {literal(exact)}")
    elif exact:
        yield from (f"{quoted(key)} in {found}" for key in exact)
    if one_by_one:
        yield f"{found}.size() > {at_most}"
        either = " || ".join([f"key.size() > {KEY_LENGTH_AT_MOST}", *one_by_one])
        yield f"{found}.exists(key, {f'({either}) && {also}' if also else either})"


class ConcernExpressions:
    """Hold expressions that are true if an object may concern a policy.

    ``typed``: the API server knows the types of the objects' fields.
    """

    def __init__(self, concern: Concern, neutral: Sequence[str], *, typed: bool) -> None:
        self._concern = concern
        self._neutral = literal(list(neutral))
        self._typed = typed

    def metadata(self, of: str = "object") -> Iterator[str]:
        """Yield expressions about the labels and annotations of an object or a template."""
        members = [("labels", self._concern.labels), ("annotations", self._concern.annotations)]
        if any(keys for _, keys in members):
            yield from self._unless_maps(of, "metadata")
        for member, keys in members:
            if keys:
                yield from self._unless_maps(f"{of}.?metadata", member)
                yield from keys_in(f"{of}.?metadata.?{member}.orValue({{}})", keys)

    def pod(self, of: str) -> Iterator[str]:
        """Yield expressions about a Pod, or about a pod template."""
        yield from self.metadata(of)
        yield from self._unless_maps(of, "spec")
        if self._concern.selectors:
            yield from self._selectors(of)
        yield from self._tolerations(of)
        yield from self._images(of)
        if self._concern.node_name:
            created = "request.operation == 'CREATE' && " if of == "object" else ""
            yield f"{created}{of}.?spec.?nodeName.orValue('') != ''"

    def templates(self, workloads: Sequence[Workload]) -> Iterator[str]:
        """Yield expressions about the templates, and about the labels that workloads give to other objects.

        Only the places that the kind of an object has are searched in it. Kinds that can't be searched are sent.
        """
        tested, sent = tested_kinds(workloads, self._concern)
        if sent:
            yield f"{RESOURCE} in {literal(sent)}"
        yield from _each({_name(each): each.paths for each in tested}, "pod", list(self.pod("pod")))
        if self._concern.labels:
            carried = {_name(each): [labels.path for labels in each.labels] for each in tested if each.labels}
            yield from _each(carried, "labels", list(keys_in("labels", self._concern.labels)))

    def _unless_maps(self, of: str, *names: str) -> Iterator[str]:
        """Yield, for each step of a path, an expression that is true if it is no map."""
        if not self._typed:
            yield from not_maps(of, *names)

    def _list(self, found: str) -> tuple[str, list[str]]:
        """Return a list that may be absent, and expressions that are true if it can't be searched.

        They are needed for typed objects, too: the API server shows some empty lists as null, before it rejects them.
        """
        items = f"{found}.orValue([])"
        return items, [f"type({items}) != list || {items}.size() > {ITEMS_AT_MOST}"]

    def _selectors(self, of: str) -> Iterator[str]:
        yield from self._unless_maps(f"{of}.?spec", "nodeSelector")
        selector = f"{of}.?spec.?nodeSelector.orValue({{}})"
        yield f"{selector}.size() > {MEMBERS_AT_MOST}"
        yield f"{selector}.exists(key, !(key in {self._neutral}))"
        required = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        yield from self._unless_maps(f"{of}.?spec", *required)
        place = "".join(f".?{name}" for name in required)
        preferred = f"{of}.?spec.?affinity.?nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"
        yield f"type({preferred}) != list || {preferred}.size() > 0"
        terms, unfit = self._list(f"{of}.?spec{place}.?nodeSelectorTerms")
        yield from unfit
        requirements, too_many = self._list("term.?matchExpressions")
        inside = [
            *([] if self._typed else ["type(term) != map"]),
            *too_many,
            f"{requirements}.exists(each, {self._unless_map('each')}!(each.?key.orValue('') in {self._neutral}))",
        ]
        yield block(f"{terms}.exists(term,", inside)

    def _tolerations(self, of: str) -> Iterator[str]:
        keys, every = self._concern.tolerations, self._concern.all_tolerations
        if not (every or keys):
            return
        tolerations, unfit = self._list(f"{of}.?spec.?tolerations")
        yield from unfit
        key = "each.?key.orValue('')"
        is_one = f"!({key} in {literal(_BY_DEFAULT)})" if every else " || ".join(self._texts(key, keys))
        yield f"{tolerations}.exists(each, {self._unless_map('each')}{is_one})"

    def _images(self, of: str) -> Iterator[str]:
        if not self._concern.images:
            return
        containers, unfit = self._list(f"{of}.?spec.?containers")
        yield from unfit
        one = " || ".join(self._texts("each.?image.orValue('')", Keys(containing=self._concern.images)))
        yield f"{containers}.exists(each, {self._unless_map('each')}{one})"

    def _texts(self, value: str, keys: Keys) -> Iterator[str]:
        """Yield expressions that are true if a text is one of the keys or contains one."""
        if not self._typed:
            yield f"type({value}) != string"
        if keys.exact:
            yield f"{value} in {literal(sorted(keys.exact))}"
        if keys.containing:
            yield f"{value}.size() > {TEXT_LENGTH_AT_MOST}"
            yield from (f"{value}.contains({quoted(text)})" for text in sorted(keys.containing))

    def _unless_map(self, item: str) -> str:
        return "" if self._typed else f"type({item}) != map || "


def changed_metadata(concern: Concern) -> Iterator[str]:
    """Yield expressions that are true if an UPDATE changes metadata that concerns a policy."""
    yield "object.?metadata.?labels != oldObject.?metadata.?labels"
    if concern.annotations:
        other = "object.metadata.?annotations[?key] != oldObject.?metadata.?annotations[?key]"
        yield from keys_in("object.?metadata.?annotations.orValue({})", concern.annotations, also=other)


def changed_templates(workloads: Sequence[Workload], *, counting: bool) -> Iterator[str]:
    """Yield expressions that are true if an UPDATE changes templates, or labels that workloads give to other objects.

    Of custom resources all but the metadata is compared. ``counting``: a lower number of replicas matters.
    """
    built_in = [each for each in workloads if each.group in BUILT_IN]
    is_built_in = f"request.resource.group in {literal(sorted(BUILT_IN))}"
    if custom := {path.segments[0] for each in workloads if each not in built_in for path in _paths(each)}:
        roots = " || ".join(f"object.?{root} != oldObject.?{root}" for root in sorted(custom))
        yield f"!({is_built_in}) && ({roots})"
    places = ("".join(f".?{name}" for name in path.divided()[0]) for each in built_in for path in _paths(each))
    lines = [f"object{place} != oldObject{place}" for place in places]
    if counting and built_in:
        new, old = (f"{each}.?spec.?replicas.orValue(1)" for each in ("object", "oldObject"))
        lines += [f"{new} < {old}", f"{old} == 0 && {new} != 0"]
    if lines:
        yield block(f"{is_built_in} && (", dict.fromkeys(lines))


def tested_kinds(workloads: Sequence[Workload], concern: Concern) -> tuple[list[Workload], list[str]]:
    """Return the kinds whose templates are tested, and the resources of the others: all of these are sent.

    Not tested are lists of lists, and containers beside `containers` where images matter.
    """
    tested: list[Workload] = []
    sent: list[str] = []
    for each in workloads:
        odd = concern.images and any(path.layout is not None and path.layout.containers for path in each.paths)
        if odd or any(path.lists > 1 for path in _paths(each)):
            sent.append(_name(each))
        else:
            tested.append(each)
    return tested, sorted(sent)


def _each(paths: Mapping[str, Sequence[TemplatePath]], name: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield expressions about the maps at these paths.

    ``paths`` are by resource; ``lines`` are expressions about one of the maps, which they call ``name``.
    """
    guards: dict[str, None] = {}
    kinds: dict[str, str] = {}
    for resource, of_kind in paths.items():
        places = [place for path in of_kind for place in places_of(path)]
        guards |= dict.fromkeys(guard for each in places for guard in each.guards)
        if sizes := dict.fromkeys(f"{size}.size()" for each in places for size in each.sizes):
            guards[f"{' + '.join(sizes)} > {ITEMS_AT_MOST}"] = None
        alone = ", ".join(dict.fromkeys(one for each in places for one in each.alone))
        several = dict.fromkeys(one for each in places for one in each.several)
        kinds[resource] = " + ".join([*([f"[{alone}]"] if alone else []), *several])
    if kinds:
        yield from guards
        # Not by `? :`, as an expression may not be nested that deeply. The API server wants values of one type.
        members = ",\n".join(f"  {quoted(resource)}: dyn({found})" for resource, found in sorted(kinds.items()))
        yield block(f"{{\n{members}\n}}[?{RESOURCE}].orValue([]).exists({name},", lines)


def _name(workload: Workload) -> str:
    return f"{workload.group}/{workload.resource}"


def _paths(workload: Workload) -> Iterator[TemplatePath]:
    yield from workload.paths
    yield from (carried.path for carried in workload.labels)
