"""Compute how ready a workload was during a reclaim, from the states of its Pods."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def readiness_of(states: Sequence[tuple[float, tuple[int, ...]]]) -> tuple[float, float, float]:
    """Return the lowest number of ready Pods, the second of full recovery, and the seconds without a ready Pod.

    ``states`` lists the number of Pods in each state, starting with ready, and the second of the change. The recovery
    or the outage is NaN if the workload never recovers. The outage is 0 if no Pod was ready at the notice.
    """
    (_, (before, *_)), again = states[0], 0.0
    for seconds, (ready, *_) in states:
        again = math.nan if ready < before else seconds if math.isnan(again) else again
    outage = sum(until - begin for (begin, (ready, *_)), (until, _) in pairwise(states) if not ready)
    down = outage if states[-1][1][0] else math.nan
    return min(ready for _, (ready, *_) in states), again, down if before else 0.0
