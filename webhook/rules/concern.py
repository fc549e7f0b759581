"""Declare which objects may concern a rule, as data of which `webhook-config` renders match conditions.

A rule names a superset of what it reports on: the API server never sends what it does not name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Keys(msgspec.Struct, frozen=True):
    """Keys of labels, annotations, or taints: ``exact`` ones, and all that contain one of the texts ``containing``."""

    exact: frozenset[str] = frozenset()
    containing: frozenset[str] = frozenset()

    def __or__(self, other: Keys) -> Keys:
        return Keys(self.exact | other.exact, self.containing | other.containing)

    def __contains__(self, key: str) -> bool:
        return key in self.exact or any(text in key for text in self.containing)

    def __bool__(self) -> bool:
        return bool(self.exact or self.containing)


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an object, or of its templates' Pods, that a rule may report on; any part is enough.

    Attributes:
        everything: whatever the object is.
        labels: keys of its labels, and of labels that it gives to others.
        selectors: the nodeSelector or required node affinity of a Pod names a key that may tell spot from other nodes,
            or the Pod prefers some nodes.
        tolerations: a Pod tolerates taints of these keys, except taints that every Pod tolerates by default.
        images: the image name of a container contains one of these texts.
        node_name: a Pod is created on a node that it names.
        in_spot_namespaces: every Pod of a namespace that has a capacity label.
    """

    everything: bool = False
    labels: Keys = Keys()
    annotations: Keys = Keys()
    selectors: bool = False
    tolerations: Keys = Keys()
    images: frozenset[str] = frozenset()
    node_name: bool = False
    in_spot_namespaces: bool = False

    def __or__(self, other: Concern) -> Concern:
        return Concern(**{name: getattr(self, name) | getattr(other, name) for name in self.__struct_fields__})


NOTHING: Final = Concern()
EVERYTHING: Final = Concern(everything=True)


@runtime_checkable
class Selective(Protocol):
    """A rule that declares its concern; any object that the policy matches concerns other rules."""

    def concern(self, group: str, resource: str, /) -> Concern:
        """Return what may concern the rule in objects of this resource and the Pods of their templates."""


def concern_of(rules: Iterable[object], group: str, resource: str) -> Concern:
    """Return what may concern any of the rules."""
    concern = NOTHING
    for rule in rules:
        concern |= rule.concern(group, resource) if isinstance(rule, Selective) else EVERYTHING
    return concern
