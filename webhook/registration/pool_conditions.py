"""Write the ``matchConditions`` for node pools: true only for changes to block while the webhook is down.

The failurePolicy is Fail, so changes that no policy evaluates must not match. While the webhook is down, controllers
must still be able to remove finalizers, write status, annotations, and their fields, and add nodes to pools. Only the
fields that the providers' readers read matter.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.joins import Sizer
from webhook.capacity.providers.query import Query, QueryPath
from webhook.capacity.providers.reader import PoolReader
from webhook.capacity.providers.reader_schema import MachineTemplateSpec, NodePoolReaderSpec
from webhook.registration import cel
from webhook.rules.protocol import Keys, concern_of
from webhook.rules.reserved_labels.places import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from webhook.capacity.providers.provider import Provider
    from webhook.registration.matched_resources import MatchedResources, ResourceKey


class ExcludedField(Enum):
    """The reason why a field's change doesn't count: it is a size that grows, or only controllers write it."""

    SIZE = auto()
    CONTROLLERS = auto()


Tree = dict[str, "Tree | ExcludedField"]
"""A tree of an object's members that leads to excluded fields."""

ON_DEMAND_FALLBACK: Final = "OnDemandFallback"
OF_POOLS: Final = frozenset({ON_DEMAND_FALLBACK, "NodePoolRules", "ReservedLabels"})
"""Policy kinds that evaluate no other fields of a node pool than the conditions compare."""

ANNOTATIONS_AT_MOST: Final = 1024
"""Annotations of a pool that are tested one by one. A pool with many must not need the webhook for every update. On a
real API server, 7,000 short keys, or 2,040 keys of 127 characters (256 KiB), stay within the budget."""
_COMPARED_OTHERWISE: Final[Tree] = dict.fromkeys(
    ("apiVersion", "kind", "metadata", "status"), ExcludedField.CONTROLLERS
)
"""Members of an object that other conditions compare, or none."""
_ANNOTATION: Final = re.compile(r'metadata\.annotations\."([^"]+)"')


def unasked_fields(providers: Iterable[Provider]) -> dict[ResourceKey, Tree]:
    """Return the sizes, and the fields that only controllers write, by API group and resource.

    Raising a size removes no fallback.
    """
    parts: dict[ResourceKey, list[PoolReader | Sizer]] = {}
    for part in _parts(providers):
        parts.setdefault((part.group, part.resource), []).append(part)
    return {key: _tree(of_resource) for key, of_resource in parts.items()}


def _parts(providers: Iterable[Provider]) -> Iterator[PoolReader | Sizer]:
    """Yield the readers of node pools and of their sizes, without those that read only files."""
    for reader in (reader for provider in providers for reader in provider.readers if reader.served):
        yield reader
        if reader.sizer is not None:
            yield reader.sizer


def _tree(parts: Collection[PoolReader | Sizer]) -> Tree:
    queries = [query for part in parts for query in queries_of(part)]
    tree: Tree = {}
    for part in parts:
        sizes = (part.desired,) if isinstance(part, Sizer) else (part.size.desired, part.size.maximum)
        for path in (path for query in sizes if query is not None for path in query.paths):
            if path[0] not in _COMPARED_OTHERWISE:
                _put(tree, path, ExcludedField.SIZE)
        for path in (tuple(field.split(".")) for field in part.controller_fields):
            # An expression may read a field if it names the field or one of its parents.
            above = any(path[: len(queried)] == queried for query in queries for queried in query.paths)
            if not above and not any(path[-1] in query.text for query in queries):
                _put(tree, path, ExcludedField.CONTROLLERS)
    return tree


def _put(tree: Tree, path: QueryPath, field: ExcludedField) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if isinstance(below, ExcludedField):  # a parent is already excluded
            return
        tree = below
    tree.setdefault(path[-1], field)


def queries_of(part: object) -> Iterator[Query]:
    """Yield all expressions of a reader."""
    if isinstance(part, Query):
        yield part
    elif isinstance(part, tuple):
        for member in part:
            yield from queries_of(member)
    elif isinstance(part, dict):
        yield from queries_of(tuple(part.values()))
    elif isinstance(part, msgspec.Struct) and not isinstance(
        part, MachineTemplateSpec
    ):  # templates have their own readers
        for name in (NodePoolReaderSpec if isinstance(part, PoolReader) else type(part)).__struct_fields__:
            yield from queries_of(getattr(part, name))


class PoolConditions:
    """The match conditions of both webhooks for node pools."""

    def __init__(self, providers: Collection[Provider], matched: MatchedResources) -> None:
        self._unasked = unasked_fields(providers)
        texts = (query.text for part in _parts(providers) for query in queries_of(part))
        self._annotations = frozenset(key for text in texts for key in _ANNOTATION.findall(text))
        self._matched = matched

    def guarding(self) -> list[dict[str, str]]:
        """Return the conditions of the webhook with failurePolicy Fail."""
        # The API server omits 0.
        new, old = (f"{value}.?spec.?replicas.orValue(0)" for value in ("object", "oldObject"))
        fewer = f"object == null || oldObject == null || {new} < {old}"
        return [
            {"name": "pools-that-change", "expression": self._changes()},
            {"name": "scaled-down", "expression": f"{cel.SUBRESOURCE} != 'scale' || {fewer}"},
        ]

    def has_more(self, key: ResourceKey) -> bool:
        """Return whether a policy also evaluates other updates of this resource."""
        return any(policy.kind.name != ON_DEMAND_FALLBACK for policy in self._matched[key].direct.values())

    def beyond(self, more: MatchedResources) -> list[dict[str, str]]:
        """Return the conditions of the webhook with failurePolicy Ignore, for other updates.

        They match changes of the spec, such as a size that grows, or all updates if any object may concern a policy.
        """
        lines = ["object == null || oldObject == null || object.?spec != oldObject.?spec"]
        whole = [
            cel.reference(*key)
            for key in more
            for policy in self._matched[key].direct.values()
            if policy.kind.name not in OF_POOLS and concern_of([policy.validator], *key).everything
        ]
        if whole:
            lines.append(f"{cel.REFERENCE} in {cel.literal(list(dict.fromkeys(whole)))}")
        return [{"name": "other-changes", "expression": cel.any_of(lines)}]

    def _changes(self) -> str:
        resources: dict[str, list[str]] = {}
        for (group, resource), tree in sorted(self._unasked.items()):
            differ = cel.any_of(_differ("", _COMPARED_OTHERWISE | tree))
            resources.setdefault(differ, []).append(f"{group}/{resource}")
        lines = [
            "object.?metadata.?labels != oldObject.?metadata.?labels",
            "object.?metadata.?ownerReferences != oldObject.?metadata.?ownerReferences",
            *cel.changes_annotations(Keys(self._annotations, frozenset({PREFIX})), at_most=ANNOTATIONS_AT_MOST),
        ]
        for differ, names in resources.items():
            lines.append(cel.block(f"{cel.RESOURCE} in {cel.literal(names)} && (", [differ]))
        other = f"request.operation != 'UPDATE' || {cel.SUBRESOURCE} != '' || object == null || oldObject == null"
        return cel.block(f"{other} || (", lines)


def _differ(place: str, tree: Tree) -> Iterator[str]:
    """Yield expressions that are true if the maps at ``place`` differ, except in larger sizes and controller fields."""
    new, old = f"object{place}", f"oldObject{place}"
    fields = {field: sorted(name for name, inner in tree.items() if inner is field) for field in ExcludedField}
    parents = {name: inner for name, inner in sorted(tree.items()) if isinstance(inner, dict)}
    sizes, controllers = fields[ExcludedField.SIZE], fields[ExcludedField.CONTROLLERS]
    yield f"{new}.size() > {cel.MEMBERS_AT_MOST} || {old}.size() > {cel.MEMBERS_AT_MOST}"
    numbers = f"type({new}[key]) == int && type({old}[?key].orValue(null)) == int"
    grew = f" && !(key in {cel.literal(sizes)} && {numbers} && {new}[key] > {old}[key])" if sizes else ""
    yield f"{new}.exists(key, !(key in {cel.literal([*parents, *controllers])}) && {new}[?key] != {old}[?key]{grew})"
    yield f"{old}.exists(key, !(key in {cel.literal(controllers)}) && !(key in {new}))"
    for name, inner in parents.items():
        unlike = " || ".join(f"type({side}.?{name}.orValue(null)) != map" for side in (new, old))
        yield cel.block(f"{new}.?{name} != {old}.?{name} && (", [unlike, *_differ(f"{place}.{name}", inner)])
