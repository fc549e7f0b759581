"""Declare the objects that may concern a rule, as data from which `webhook-config` renders match conditions.

A rule must declare a superset of the objects that it reports on: the API server doesn't send any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Keys(msgspec.Struct, frozen=True):
    """Keys of labels, annotations, or taints: those in ``exact``, and all that contain a text of ``containing``."""

    exact: frozenset[str] = frozenset()
    containing: frozenset[str] = frozenset()

    def __or__(self, other: Keys) -> Keys:
        return Keys(self.exact | other.exact, self.containing | other.containing)

    def __contains__(self, key: str) -> bool:
        return key in self.exact or any(text in key for text in self.containing)

    def __bool__(self) -> bool:
        return bool(self.exact or self.containing)


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an object, or of its templates' Pods, that may concern a rule. One part is enough.

    Attributes:
        everything: any object concerns the rule.
        labels: keys of the object's labels, and of labels that it gives to other objects.
        selectors: the nodeSelector or required node affinity of a Pod names a key that may distinguish spot nodes, or
            the Pod prefers some nodes.
        tolerations: a Pod tolerates taints with these keys, except the taints that every Pod tolerates by default.
        images: the image name of a container contains one of these texts.
        gates: a Pod has a scheduling gate with one of these names.
        node_name: a Pod is created with ``spec.nodeName``.
        in_spot_namespaces: every Pod in a namespace with a capacity label.
    """

    everything: bool = False
    labels: Keys = Keys()
    annotations: Keys = Keys()
    selectors: bool = False
    tolerations: Keys = Keys()
    images: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    node_name: bool = False
    in_spot_namespaces: bool = False

    def __or__(self, other: Concern) -> Concern:
        return Concern(**{name: getattr(self, name) | getattr(other, name) for name in self.__struct_fields__})


NOTHING: Final = Concern()
EVERYTHING: Final = Concern(everything=True)


@runtime_checkable
class Selective(Protocol):
    """A rule that declares its concern. Any matching object concerns the other rules."""

    def concern(self, group: str, resource: str, /) -> Concern:
        """Return the concern of the rule in objects of this resource and the Pods of their templates."""


def concern_of(rules: Iterable[object], group: str, resource: str) -> Concern:
    """Return the combined concern of the rules."""
    concern = NOTHING
    for rule in rules:
        concern |= rule.concern(group, resource) if isinstance(rule, Selective) else EVERYTHING
    return concern
