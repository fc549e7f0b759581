"""Follow the states of the Pods of each workload, from the notice on."""

from __future__ import annotations

import math
from collections.abc import Sequence  # noqa: TC003 - msgspec reads the annotations
from itertools import pairwise

import msgspec


class Readiness(msgspec.Struct):
    """How many Pods of one workload are in each state; the first state is ready.

    Attributes:
        looks: these numbers, with the second since which they hold.
    """

    looks: Sequence[tuple[float, tuple[int, ...]]]

    @property
    def lowest(self) -> int:
        """Return the fewest that were ready."""
        return min(ready for _, (ready, *_) in self.looks)

    @property
    def again(self) -> float:
        """Return the second since which as many are ready as at the notice; NaN if fewer are."""
        (_, (before, *_)), again = self.looks[0], 0.0
        for seconds, (ready, *_) in self.looks:
            again = math.nan if ready < before else seconds if math.isnan(again) else again
        return again

    @property
    def down(self) -> float:
        """Return for how many seconds none was ready, if one was at the notice; NaN if in the end none is."""
        if not self.looks[0][1][0]:
            return 0.0
        none = sum(until - begin for (begin, (ready, *_)), (until, _) in pairwise(self.looks) if not ready)
        return none if self.looks[-1][1][0] else math.nan
