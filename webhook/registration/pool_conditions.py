"""Write ``matchConditions`` about node pools: true only for changes that must be denied without the webhook.

The failurePolicy is Fail, so changes that no policy judges must not match: controllers remove finalizers, write
status, annotations and fields of their own, and give pools more nodes, also while the webhook is down. The fields that
matter are those that the readers of the providers read.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from webhook.capacity.providers.joins import Sizer
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.reader import PoolReader
from webhook.capacity.providers.reader_schema import MachineTemplateSpec, NodePoolReaderSpec
from webhook.registration.cel import literal
from webhook.registration.conditions import (
    MEMBERS_AT_MOST,
    REFERENCE,
    RESOURCE,
    SUBRESOURCE,
    any_of,
    block,
    changes_annotations,
    reference,
)
from webhook.rules.concern import Keys, concern_of
from webhook.rules.reserved_labels.places import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.query import QueryPath
    from webhook.registration.matched_resources import MatchedResources, ResourceKey


class ExcludedField(Enum):
    """The reason why a change of a field does not count: a size grows, or only controllers write it."""

    SIZE = auto()
    CONTROLLERS = auto()


Tree = dict[str, "Tree | ExcludedField"]
"""Members of an object on the way to these fields."""

ON_DEMAND_FALLBACK: Final = "OnDemandFallback"
OF_POOLS: Final = frozenset({ON_DEMAND_FALLBACK, "NodePoolRules", "ReservedLabels"})
"""Policy kinds that judge no fields of a node pool but those that are compared here."""

ANNOTATIONS_AT_MOST: Final = 1024
"""Annotations of a pool that are looked at one by one. Measured on a real API server, 7,000 short keys or 2,040 of 127
characters (256 KiB) stay within the budget: a pool with many must not need an answer for every update."""
_COMPARED_OTHERWISE: Final[Tree] = dict.fromkeys(
    ("apiVersion", "kind", "metadata", "status"), ExcludedField.CONTROLLERS
)
"""Members of an object that are compared in another way, or never."""
_ANNOTATION: Final = re.compile(r'metadata\.annotations\."([^"]+)"')


def unasked_fields(providers: Iterable[Provider]) -> dict[ResourceKey, Tree]:
    """Return the sizes, and the fields that only controllers write, by API group and resource.

    A higher number takes no fallback away.
    """
    parts: dict[ResourceKey, list[PoolReader | Sizer]] = {}
    for part in _parts(providers):
        parts.setdefault((part.group, part.resource), []).append(part)
    return {key: _tree(of_resource) for key, of_resource in parts.items()}


def _parts(providers: Iterable[Provider]) -> Iterator[PoolReader | Sizer]:
    """Yield the readers of node pools, and those of the size of node pools."""
    for reader in (reader for provider in providers for reader in provider.readers):
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
        for path in part.controller_fields:
            # An expression may read a field if it names it, or a field that holds it.
            above = any(path[: len(queried)] == queried for query in queries for queried in query.paths)
            if not above and not any(path[-1] in query.text for query in queries):
                _put(tree, path, ExcludedField.CONTROLLERS)
    return tree


def _put(tree: Tree, path: QueryPath, field: ExcludedField) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if isinstance(below, ExcludedField):  # the field above is one of them
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
    elif isinstance(part, BaseModel) and not isinstance(part, MachineTemplateSpec):  # these have readers of their own
        for name in (NodePoolReaderSpec if isinstance(part, PoolReader) else type(part)).model_fields:
            yield from queries_of(getattr(part, name))


class PoolConditions:
    """The conditions of both webhooks about node pools."""

    def __init__(self, providers: Collection[Provider], matched: MatchedResources) -> None:
        self._unasked = unasked_fields(providers)
        texts = (query.text for part in _parts(providers) for query in queries_of(part))
        self._annotations = frozenset(key for text in texts for key in _ANNOTATION.findall(text))
        self._matched = matched

    def guarding(self) -> list[dict[str, str]]:
        """Return the conditions of the webhook with failurePolicy Fail."""
        # The API server leaves out 0.
        new, old = (f"{value}.?spec.?replicas.orValue(0)" for value in ("object", "oldObject"))
        fewer = f"object == null || oldObject == null || {new} < {old}"
        return [
            {"name": "pools-that-change", "expression": self._changes()},
            {"name": "scaled-down", "expression": f"{SUBRESOURCE} != 'scale' || {fewer}"},
        ]

    def has_more(self, key: ResourceKey) -> bool:
        """Return whether a policy judges other updates of such an object, too."""
        return any(policy.kind.name != ON_DEMAND_FALLBACK for policy in self._matched[key].direct.values())

    def beyond(self, more: MatchedResources) -> list[dict[str, str]]:
        """Return the conditions of the webhook with failurePolicy Ignore, for other updates.

        They are changes of the spec, such as a size that grows, and all updates if a policy does not say what concerns
        it.
        """
        lines = ["object == null || oldObject == null || object.?spec != oldObject.?spec"]
        whole = [
            reference(*key)
            for key in more
            for policy in self._matched[key].direct.values()
            if policy.kind.name not in OF_POOLS and concern_of([policy.validator], *key).everything
        ]
        if whole:
            lines.append(f"{REFERENCE} in {literal(list(dict.fromkeys(whole)))}")
        return [{"name": "other-changes", "expression": any_of(lines)}]

    def _changes(self) -> str:
        resources: dict[str, list[str]] = {}
        for (group, resource), tree in sorted(self._unasked.items()):
            differ = any_of(_differ("", _COMPARED_OTHERWISE | tree))
            resources.setdefault(differ, []).append(f"{group}/{resource}")
        lines = [
            "object.?metadata.?labels != oldObject.?metadata.?labels",
            "object.?metadata.?ownerReferences != oldObject.?metadata.?ownerReferences",
            *changes_annotations(Keys(self._annotations, frozenset({PREFIX})), at_most=ANNOTATIONS_AT_MOST),
            *(block(f"{RESOURCE} in {literal(names)} && (", [differ]) for differ, names in resources.items()),
        ]
        return block(
            f"request.operation != 'UPDATE' || {SUBRESOURCE} != '' || object == null || oldObject == null || (", lines
        )


def _differ(place: str, tree: Tree) -> Iterator[str]:
    """Yield expressions that are true if the maps there differ, except in sizes that grew and controllers' fields."""
    new, old = f"object{place}", f"oldObject{place}"
    fields = {field: sorted(name for name, inner in tree.items() if inner is field) for field in ExcludedField}
    parents = {name: inner for name, inner in sorted(tree.items()) if isinstance(inner, dict)}
    sizes, controllers = fields[ExcludedField.SIZE], fields[ExcludedField.CONTROLLERS]
    yield f"{new}.size() > {MEMBERS_AT_MOST} || {old}.size() > {MEMBERS_AT_MOST}"
    numbers = f"type({new}[key]) == int && type({old}[?key].orValue(null)) == int"
    grew = f" && !(key in {literal(sizes)} && {numbers} && {new}[key] > {old}[key])" if sizes else ""
    yield f"{new}.exists(key, !(key in {literal([*parents, *controllers])}) && {new}[?key] != {old}[?key]{grew})"
    yield f"{old}.exists(key, !(key in {literal(controllers)}) && !(key in {new}))"
    for name, inner in parents.items():
        unlike = " || ".join(f"type({side}.?{name}.orValue(null)) != map" for side in (new, old))
        yield block(f"{new}.?{name} != {old}.?{name} && (", [unlike, *_differ(f"{place}.{name}", inner)])
