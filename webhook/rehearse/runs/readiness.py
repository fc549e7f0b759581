"""Judge by the states of a workload's Pods, from the notice on, how well it came through."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def readiness_of(states: Sequence[tuple[float, tuple[int, ...]]]) -> tuple[float, float, float]:
    """Return how many Pods were ready at least, when as many were again as at the notice, and how long none was.

    ``states`` has how many Pods are in each state, of which the first is ready, with the second since which that holds.
    A second or a time that has no end is NaN. If none was ready at the notice, there is no such time.
    """
    (_, (before, *_)), again = states[0], 0.0
    for seconds, (ready, *_) in states:
        again = math.nan if ready < before else seconds if math.isnan(again) else again
    outage = sum(until - begin for (begin, (ready, *_)), (until, _) in pairwise(states) if not ready)
    down = outage if states[-1][1][0] else math.nan
    return min(ready for _, (ready, *_) in states), again, down if before else 0.0
