"""Follow how many Pods of each workload are ready, from the notice on."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec


class Readiness(msgspec.Struct):
    """How many Pods of one workload are ready.

    Attributes:
        looks: each number, with the second since which it holds.
    """

    looks: list[tuple[float, int]] = []

    def look(self, ready: int, seconds: float) -> None:
        """Note how many Pods are ready in this second."""
        if not self.looks or self.looks[-1][1] != ready:
            self.looks.append((seconds, ready))

    @property
    def lowest(self) -> int:
        """Return the fewest that were ready."""
        return min(ready for _, ready in self.looks)

    @property
    def again(self) -> float:
        """Return the second since which as many are ready as at the notice; NaN if fewer are."""
        (_, before), again = self.looks[0], 0.0
        for seconds, ready in self.looks:
            again = math.nan if ready < before else seconds if math.isnan(again) else again
        return again

    @property
    def down(self) -> float:
        """Return for how many seconds none was ready, if one was at the notice; NaN if in the end none is."""
        if not self.looks[0][1]:
            return 0.0
        none = sum(until - begin for (begin, ready), (until, _) in pairwise(self.looks) if not ready)
        return none if self.looks[-1][1] else math.nan
