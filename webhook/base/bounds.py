"""Limit the size of the objects that are judged: no request takes more than 100 ms of CPU and 50 MiB of memory.

Everything is counted where an object is decoded, before a rule sees it. The engine does not judge an object that is
over a limit: it reports that in one finding, and judges only the labels. Objects that work are far below each limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_MIB: Final = 1024 * 1024

DECODED_AT_MOST: Final = 16 * _MIB
"""Bytes that an object may take as Python values. A request has two objects. An ordinary object takes 8 times its JSON,
so this is one of 2 MiB, which etcd does not take (1.5 MiB)."""

READ_AT_MOST: Final = 4 * _MIB
"""Bytes for objects that expressions iterate over, at 2 us an item: those of a node pool's reader, or a team's own. A
pool that lists 4,000 nodes in its status takes 3 MiB, a Pod with 5,000 environment variables 2 MiB."""

_OF_CONTAINER: Final = 200
_OF_QUOTE: Final = 32
_OF_COMMA: Final = 64
"""Bytes that a map or list takes which is not empty, half a short string, and a further item with its share of the
list or map: what CPython 3.11 takes, rounded up. Those in strings count, too: this is no less than what is needed."""

HINTED_AT_MOST: Final = 253
"""Characters of a word that is compared with others for a hint: the longest name that Kubernetes accepts."""

TEXT_AT_MOST: Final = 4_096
"""Characters of user input that one part of a finding repeats. An API server shows as many of all warnings together."""


class Bound(msgspec.Struct, frozen=True):
    """The most items of one sort in one object: a Pod, or all pod templates of a workload together."""

    field: str
    noun: str
    at_most: int


SELECTOR_KEYS: Final = Bound("spec.nodeSelector", "keys", 250)
"""More labels than any node has: some 60 on the clouds."""

REQUIREMENTS: Final = Bound("spec.affinity.nodeAffinity", "requirements", 250)
"""Each term counts its own and those of the nodeSelector, which must hold as well. Each is compared with each node
pool: with 100 of them that takes 40 ms."""

VALUES: Final = Bound("spec.affinity.nodeAffinity", "values", 5_000)
"""The longest list that makes sense names all nodes but one; Kubernetes supports 5,000."""

TOLERATIONS: Final = Bound("spec.tolerations", "tolerations", 250)
"""Each is compared with the taints of each node pool. Pods have some five."""

CONTAINERS: Final = Bound("spec.containers", "containers", 1_000)
"""Containers of all three lists. No kubelet runs so many."""

RESOURCES: Final = Bound("spec.containers[*].resources", "resources", 5_000)
"""Resources of all containers: five of each."""

VOLUMES: Final = Bound("spec.volumes", "volumes", 1_000)
"""One volume of each container."""

LABELS: Final = Bound("metadata.labels", "labels", 2_000)
ANNOTATIONS: Final = Bound("metadata.annotations", "annotations", 2_000)
"""People write a dozen, and controllers a few dozen."""

LEAST: Final = SELECTOR_KEYS.at_most
"""An object with at most this many items in all is within every bound."""

POOL_ITEMS: Final = 1_000
"""Items of one list or map that a node pool's reader reads. Karpenter's schema takes 100 requirements and 50 budgets;
the longest real lists are of instance types, of which AWS has some 900."""

QUERY_STEPS: Final = 1_000
"""Nodes of a JMESPath expression that are evaluated on one object, each for each item it goes over. The longest shipped
one takes 9 for each budget, of which Karpenter has 50 at most. A reader asks some 20 expressions, of both objects of an
UPDATE: at 1.5 us a step that takes 60 ms."""


class OverBoundError(Exception):
    """An object with more items of one sort than spotgate judges.

    Attributes:
        field: the field path.
        reason: the count and its bound, as a sentence.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason

    @classmethod
    def of(cls, bound: Bound, count: int, prefix: str = "") -> OverBoundError:
        """Return the error for a count over its bound; ``prefix`` is the path of the pod template, if it is in one."""
        field = f"{prefix}.{bound.field}" if prefix else bound.field
        return cls(field, f"{bound.field} has {count:,} {bound.noun}, more than the {bound.at_most:,} that are judged")


def expect_decodable(raw: msgspec.Raw | bytes, at_most: int, field: str = "") -> None:
    """Raise OverBoundError for JSON that would take more memory than ``at_most`` as Python values.

    The size is estimated without decoding.
    """
    if len(raw) * _OF_CONTAINER <= at_most:
        return
    data = bytes(raw)
    size = len(data) + (data.count(b"{") + data.count(b"[")) * _OF_CONTAINER
    if size <= at_most:
        size += data.count(b'"') * _OF_QUOTE + data.count(b",") * _OF_COMMA
    if size > at_most:
        what = field or "the object"
        raise OverBoundError(
            field, f"{what} takes about {size // _MIB} MiB of memory, more than the {at_most // _MIB} that are judged"
        )


class Counts:
    """Numbers of items of each sort in all Pods of one object."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Bound, int] = {}

    def add(self, counted: Iterable[tuple[Bound, int]], prefix: str) -> None:
        """Add the items of one Pod.

        Raises:
            OverBoundError: one sort of item is over its bound.
        """
        for bound, number in counted:
            count = self._counts[bound] = self._counts.get(bound, 0) + number
            if count > bound.at_most:
                raise OverBoundError.of(bound, count, prefix)
