"""Follow how many Pods of each workload are ready, from the notice on."""

from __future__ import annotations

import math

import msgspec


class Readiness(msgspec.Struct):
    """Hold how many Pods of one workload are ready.

    Attributes:
        before: at the notice.
        now: at the last look.
        lowest: the fewest so far.
        seconds: of the last look.
        again: the second since which as many are ready as before; NaN: fewer are.
        none_ready: for how many seconds none was ready.
    """

    before: int
    now: int
    lowest: int
    seconds: float = 0.0
    again: float = 0.0
    none_ready: float = 0.0

    @property
    def down(self) -> float:
        """Return for how many seconds a workload has no ready Pod that had one before; NaN: in the end it has none."""
        return (self.none_ready if self.now else math.nan) if self.before else 0.0

    def look(self, ready: int, seconds: float) -> None:
        """Take over how many Pods are ready in this second."""
        if not self.now:
            self.none_ready += seconds - self.seconds
        if ready < self.before:
            self.again = math.nan
        elif math.isnan(self.again):
            self.again = seconds
        self.now, self.seconds, self.lowest = ready, seconds, min(self.lowest, ready)
