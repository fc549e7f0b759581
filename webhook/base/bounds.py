"""Limit the size of objects and files, so that no request takes more than 100 ms of CPU and 50 MiB of memory.

The decoders count the items of an object before any rule runs. If the object exceeds a limit, the engine reports one
finding and evaluates only the labels. Objects that work in practice stay far below every limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_MIB: Final = 1024 * 1024

DECODED_AT_MOST: Final = 16 * _MIB
"""Bytes that an object may take as Python values. A request has two objects. An ordinary object takes 8 times its JSON,
so the limit allows 2 MiB of JSON; etcd stores at most 1.5 MiB."""

READ_AT_MOST: Final = 4 * _MIB
"""Bytes of an object that expressions iterate over: those of a node pool's reader, or a team's. An item takes 2 us. A
pool that lists 4,000 nodes in its status takes 3 MiB; a Pod with 5,000 environment variables takes 2 MiB."""

_OF_CONTAINER: Final = 200
_OF_QUOTE: Final = 32
_OF_COMMA: Final = 64
"""Bytes that CPython 3.11 takes, rounded up, for a map or list that isn't empty, for half a short string, and for a
further item with its share of the list or map. Characters inside strings also count: the estimate is never too low."""

FILE_AT_MOST: Final = 64 * _MIB
"""Bytes of a file: enough for the state of a large cluster. The API server accepts objects of 3 MiB."""

HINTED_AT_MOST: Final = 253
"""Characters of a word to look up similar words for: the longest name that Kubernetes accepts."""

TEXT_AT_MOST: Final = 4_096
"""Characters of user input that one part of a finding repeats. The API server limits all warnings together to this."""


class Bound(msgspec.Struct, frozen=True):
    """The maximum number of items of one sort in one object: a Pod, or all pod templates of a workload together."""

    field: str
    noun: str
    at_most: int


SELECTOR_KEYS: Final = Bound("spec.nodeSelector", "keys", 250)
"""Nodes have fewer labels: about 60 on cloud providers."""

REQUIREMENTS: Final = Bound("spec.affinity.nodeAffinity", "requirements", 250)
"""Each term counts its own requirements plus those of the nodeSelector. Rules compare each one with each node pool,
which takes 40 ms with 100 pools."""

VALUES: Final = Bound("spec.affinity.nodeAffinity", "values", 5_000)
"""The longest useful list names all nodes but one. Kubernetes supports 5,000 nodes."""

TOLERATIONS: Final = Bound("spec.tolerations", "tolerations", 250)
"""Rules compare each one with the taints of each node pool. Pods have about five."""

CONTAINERS: Final = Bound("spec.containers", "containers", 1_000)
"""The containers of all three lists. No kubelet runs this many."""

RESOURCES: Final = Bound("spec.containers[*].resources", "resources", 5_000)
"""The resources of all containers: five each."""

VOLUMES: Final = Bound("spec.volumes", "volumes", 1_000)
"""One volume for each container."""

LABELS: Final = Bound("metadata.labels", "labels", 2_000)
ANNOTATIONS: Final = Bound("metadata.annotations", "annotations", 2_000)
"""Users write about a dozen, and controllers a few dozen."""

LEAST: Final = SELECTOR_KEYS.at_most
"""An object with at most this many items in total is within every bound."""

POOL_ITEMS: Final = 1_000
"""Items of one list or map that a node pool's reader reads. Karpenter's schema allows 100 requirements and 50 budgets.
The longest real lists name instance types; AWS has about 900."""

QUERY_STEPS: Final = 1_000
"""Evaluation steps of a JMESPath expression on one object: one for each node of the expression and each item that it
iterates over. The longest shipped expression takes 9 for each budget, and Karpenter allows 50 budgets. A reader
evaluates about 20 expressions on both objects of an UPDATE: 60 ms at 1.5 us a step."""


class OverBoundError(Exception):
    """An object with more items of one sort than spotgate evaluates.

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
        """Return the error for a count over its bound; ``prefix`` is the field path of the pod template, if any."""
        field = f"{prefix}.{bound.field}" if prefix else bound.field
        return cls(field, f"{bound.field} has {count:,} {bound.noun}, more than the maximum of {bound.at_most:,}")


def expect_decodable(raw: msgspec.Raw | bytes, at_most: int, field: str = "") -> None:
    """Raise OverBoundError if the JSON would take more than ``at_most`` bytes as Python values.

    Estimate the size without decoding.
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
            field, f"{what} takes about {size // _MIB} MiB of memory, more than the maximum of {at_most // _MIB}"
        )


class Counts:
    """The number of items of each sort in all Pods of one object."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Bound, int] = {}

    def add(self, counted: Iterable[tuple[Bound, int]], prefix: str) -> None:
        """Add the items of one Pod.

        Raises:
            OverBoundError: the items of one sort exceed their bound.
        """
        for bound, number in counted:
            count = self._counts[bound] = self._counts.get(bound, 0) + number
            if count > bound.at_most:
                raise OverBoundError.of(bound, count, prefix)
