"""Find in CEL the Pods that a custom resource makes: in pod templates, or put together from several places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from webhook.cli.export.cel import segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.kube.layouts import Source, Steps
    from webhook.kube.templates import TemplatePath

ITEMS_AT_MOST: Final = 16
"""Items of a list, and templates in the lists of an object: one costs 25,000 at most, and an object has no more than
ten others. The largest RayClusters have some ten worker groups."""

_WILDCARDS: Final = frozenset({"*", "[*]"})


_Parts: TypeAlias = "tuple[Steps | None, Steps | None]"
"""Where the metadata and the spec stand; None: nowhere."""


class TemplatePlaces(msgspec.Struct, frozen=True):
    """Hold the places of maps in an object, as CEL.

    Attributes:
        guards: expressions that are true if an object can't be searched there.
        alone: items of a list, one for each map.
        several: lists of maps.
        sizes: the lists and maps of the object that those come from.
    """

    guards: tuple[str, ...]
    alone: tuple[str, ...] = ()
    several: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


def places_of(path: TemplatePath) -> Iterator[TemplatePlaces]:
    """Yield the places of the maps at a path that leads through one list or map at most.

    A Pod that is put together stands in several: each of its parts is one map, with ``metadata`` and ``spec``.
    """
    steps = segments(path.text)
    wild = next((number for number, each in enumerate(steps) if each in _WILDCARDS), None)
    layout = path.layout
    own = None if layout is None else (layout.metadata, layout.spec)
    if wild is None:
        yield _alone(steps) if own is None else _part("object", steps, own)
    else:
        yield _several(steps[:wild], steps[wild + 1 :], own, is_list=steps[wild] == "[*]")
    for source in layout.inherits if layout is not None else ():
        yield _inherited(source)


def not_maps(of: str, *names: str) -> Iterator[str]:
    """Yield, for each step of a path, an expression that is true if it is no map."""
    for end in range(1, len(names) + 1):
        yield f"type({_member(of, names[:end])}.orValue({{}})) != map"


def _alone(steps: Sequence[str]) -> TemplatePlaces:
    return TemplatePlaces(tuple(not_maps("object", *steps)), alone=(f"?{_member('object', steps)}",))


def _inherited(source: Source) -> TemplatePlaces:
    return _part("object", (), (source.metadata, source.spec))


def _part(of: str, steps: Sequence[str], own: _Parts) -> TemplatePlaces:
    value, guards = _put_together(of, steps, own)
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
