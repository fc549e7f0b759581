"""Define the metrics of reclaim notices."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable


_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""In seconds. A Pod waits for tens of milliseconds, or until another leader is elected."""


class NoticeMetrics:
    """The metrics of one controller.

    Attributes:
        waiting: for each Pod with a notice and without its time, the moment since when it waits.
    """

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool]) -> None:
        self.waiting: dict[str, float] = {}
        self.notices = Counter(
            "spotgate_reclaim_notices", "Notices of reclaims on Nodes.", ["provider"], registry=registry
        )
        self.informed = Histogram(
            "spotgate_reclaim_informed_seconds",
            "How long Pods with a notice waited for its time.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self.evictions = Counter(
            "spotgate_reclaim_evictions",
            "Answers to requests for Evictions: granted, blocked by a budget, or failed.",
            ["result"],
            registry=registry,
        )
        for result in ("granted", "blocked", "failed"):
            self.evictions.labels(result)
        oldest = Gauge(
            "spotgate_reclaim_oldest_wait_seconds",
            "For how long the Pod that waits longest for the time of its notice has waited.",
            registry=registry,
        )
        oldest.set_function(lambda: monotonic() - min(self.waiting.values()) if self.waiting else 0.0)
        leader = Gauge("spotgate_reclaim_leader", "1 for a leader that sees the cluster.", registry=registry)
        leader.set_function(leads)
