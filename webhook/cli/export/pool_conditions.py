"""``matchConditions`` about node pools, as CEL: true only for changes that must be denied while the webhook is down.

The failurePolicy is Fail, so changes that no policy judges must not match: controllers remove finalizers, write status
and annotations, and give pools more nodes, also while the webhook is down. The fields that matter are those that the
readers of the providers read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.query import Query
from webhook.cli.export.cel import literal, quoted
from webhook.cli.export.conditions import MEMBERS_AT_MOST, block, keys_in
from webhook.rules.concern import Keys, concern_of
from webhook.rules.reserved_labels.own import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import msgspec

    from webhook.capacity.providers.provider import Provider
    from webhook.cli.export.matched_resources import Key, MatchedResources

Tree = dict[str, "Tree"]
"""Members of an object on the way to its size fields; a size field has none."""

ON_DEMAND_FALLBACK: Final = "OnDemandFallback"
OF_POOLS: Final = frozenset({ON_DEMAND_FALLBACK, "NodePoolRules", "ReservedLabels"})
"""Policy kinds that judge no fields of a node pool but those that are compared here."""

_SCALE: Final = "request.?subResource.orValue('')"
_NOT_READ: Final = ("apiVersion", "kind", "metadata", "status")
"""Members of an object that are compared in another way, or never."""
_ANNOTATION: Final = re.compile(r'metadata\.annotations\."([^"]+)"')


def size_fields(providers: Iterable[Provider]) -> dict[tuple[str, str], Tree]:
    """Return the fields that hold the desired number of nodes, by API group and resource.

    A higher number takes no fallback away.
    """
    found: dict[tuple[str, str], Tree] = {}
    for provider in providers:
        for reader in provider.readers:
            _grow(found.setdefault((reader.group, reader.resource), {}), reader.desired, reader.maximum)
            if reader.sizer is not None:
                _grow(found.setdefault((reader.sizer.group, reader.sizer.resource), {}), reader.sizer.desired)
    return found


def _grow(tree: Tree, *queries: Query | None) -> None:
    for query in queries:
        for path in query.paths if query is not None else ():
            if path[0] not in _NOT_READ:
                place = tree
                for name in path:
                    place = place.setdefault(name, {})


def annotations_read(providers: Iterable[Provider]) -> frozenset[str]:
    """Return the annotations that readers of node pools read."""
    texts = (
        query.text
        for provider in providers
        for reader in provider.readers
        for part in (reader, reader.sizer)
        if part is not None
        for query in _queries(part)
    )
    return frozenset(key for text in texts for key in _ANNOTATION.findall(text))


def _queries(part: msgspec.Struct | tuple[object, ...] | object) -> Iterator[Query]:
    """Yield all expressions of a reader."""
    if isinstance(part, Query):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from _queries(each)
    elif isinstance(part, dict):
        yield from _queries(tuple(part.values()))
    elif hasattr(part, "__struct_fields__"):
        for name in part.__struct_fields__:
            yield from _queries(getattr(part, name))


class PoolConditions:
    """The conditions of both webhooks about node pools.

    Args:
        providers: the providers of the node pools.
        matched: the resources of node pools that the policies match.
    """

    def __init__(self, providers: Collection[Provider], matched: MatchedResources) -> None:
        sizes = size_fields(providers)
        self._resources = {key: sizes[key] for key in sorted(matched) if key in sizes}
        self._annotations = annotations_read(providers)
        self._matched = matched

    def guarding(self) -> list[dict[str, str]]:
        """Return the conditions of the webhook with failurePolicy Fail."""
        return [
            {"name": "pools-that-change", "expression": self._changes()},
            {"name": "scaled-down", "expression": f"{_SCALE} != 'scale' || {_fewer_replicas()}"},
        ]

    def has_more(self, key: Key) -> bool:
        """Return whether a policy judges other updates of such an object, too."""
        return any(policy.kind != ON_DEMAND_FALLBACK for policy in self._matched[key].direct.values())

    def beyond(self, more: MatchedResources) -> list[dict[str, str]]:
        """Return the conditions of the webhook with failurePolicy Ignore, for other updates.

        They are a size that grows, and all updates if a policy does not say what concerns it.
        """
        whole = [key for key in more if self._concerns_all(key)]
        parts = [
            block(f"{of_resource(*key)} && (", _grows("object", "oldObject", tree))
            for key, tree in self._resources.items()
            if tree and key in more and key not in whole
        ]
        lines = [*map(_of_path, whole), *parts]
        return [{"name": "other-changes", "expression": block("object == null || oldObject == null || (", lines)}]

    def _concerns_all(self, key: Key) -> bool:
        policies = self._matched[key].direct.values()
        return any(
            policy.kind not in OF_POOLS and concern_of([policy.validator], *key).everything for policy in policies
        )

    def _changes(self) -> str:
        keys = Keys(self._annotations, frozenset({PREFIX}))
        old, new = (f"{each}.?metadata.?annotations.orValue({{}})" for each in ("oldObject", "object"))
        other = "object.metadata.?annotations[?key] != oldObject.?metadata.?annotations[?key]"
        removed = (f"{quoted(key)} in {old} && !({quoted(key)} in {new})" for key in sorted(self._annotations))
        roots = sorted({*_NOT_READ, *(root for tree in self._resources.values() for root in tree)})
        lines = [
            "object.?metadata.?labels != oldObject.?metadata.?labels",
            "object.?metadata.?ownerReferences != oldObject.?metadata.?ownerReferences",
            *keys_in(new, keys, also=other),
            *removed,
            f"object.size() > {MEMBERS_AT_MOST} || oldObject.size() > {MEMBERS_AT_MOST}",
            f"object.exists(key, !(key in {literal(roots)}) && object[?key] != oldObject[?key])",
            f"oldObject.exists(key, !(key in {literal(list(_NOT_READ))}) && !(key in object))",
            *(
                block(f"{of_resource(*key)} && (", _differs_below("object", "oldObject", tree, roots))
                for key, tree in self._resources.items()
            ),
        ]
        return block(
            f"request.operation != 'UPDATE' || {_SCALE} != '' || object == null || oldObject == null || (", lines
        )


def _of_path(key: Key) -> str:
    resource, _, subresource = key[1].partition("/")
    return f"{of_resource(key[0], resource)} && {_SCALE} == {quoted(subresource)}"


def of_resource(group: str, resource: str) -> str:
    """Return an expression that is true if the request is about this resource."""
    return f"request.resource.group == {quoted(group)} && request.resource.resource == {quoted(resource)}"


def _differs(new: str, old: str, tree: Tree) -> Iterator[str]:
    """Yield expressions that are true if one map differs from the other in more than sizes that grew."""
    yield f"{new}.size() > {MEMBERS_AT_MOST} || {old}.size() > {MEMBERS_AT_MOST}"
    sizes = literal(sorted(name for name, inner in tree.items() if not inner))
    parents = [name for name, inner in sorted(tree.items()) if inner]
    unless = f"!(key in {literal(parents)}) && " if parents else ""
    yield f"{new}.exists(key, {unless}{new}[?key] != {old}[?key] && !(key in {sizes} && {_grew(new, old)}))"
    yield f"{old}.exists(key, !(key in {new}))"
    yield from _differs_below(new, old, tree, parents)


def _differs_below(new: str, old: str, tree: Tree, names: Iterable[str]) -> Iterator[str]:
    """Yield expressions that are true if a member differs from the old one in more than sizes that grew."""
    for name in names:
        if name not in _NOT_READ:
            differ = f"{new}.?{name} != {old}.?{name}"
            inner = tree.get(name)
            unlike = " || ".join(f"type({each}.?{name}.orValue(null)) != map" for each in (new, old))
            yield (
                block(f"{differ} && (", [unlike, *_differs(f"{new}.{name}", f"{old}.{name}", inner)])
                if inner
                else differ
            )


def _grew(new: str, old: str) -> str:
    """Return an expression that is true if the member ``key`` is a greater number than before."""
    return f"type({new}[key]) == int && type({old}[?key].orValue(null)) == int && {new}[key] > {old}[key]"


def _fewer_replicas() -> str:
    """Return an expression that is true if it is scaled down. The API server leaves out 0."""
    new, old = (f"{each}.?spec.?replicas.orValue(0)" for each in ("object", "oldObject"))
    return f"object == null || oldObject == null || {new} < {old}"


def _grows(new: str, old: str, tree: Tree) -> Iterator[str]:
    """Yield expressions that are true if a size grows."""
    if sizes := sorted(name for name, inner in tree.items() if not inner):
        yield f"{literal(sizes)}.exists(key, key in {new} && {_grew(new, old)})"
    for name, inner in sorted(tree.items()):
        if inner:
            alike = " && ".join(f"type({each}.?{name}.orValue(null)) == map" for each in (new, old))
            yield block(f"{alike} && (", _grows(f"{new}.{name}", f"{old}.{name}", inner))
