"""Register the metrics of reclaim notices."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from webhook.runtime.metrics import MetricsOf

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from webhook.runtime.metrics import Value


class NoticeMetrics:
    """The metrics of one controller.

    Attributes:
        waiting: for each Pod with a notice and without its time, the moment since when it waits.
    """

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool]) -> None:
        self.waiting: dict[str, float] = {}
        self._leads = leads
        metrics = MetricsOf("notice", registry, self._gauges)
        self.notices = metrics.counters["reclaim_notices"]
        self.informed = metrics.histograms["reclaim_informed_seconds"]
        self.evictions = metrics.counters["reclaim_evictions"]
        for result in ("granted", "blocked", "failed"):
            self.evictions.labels(result)

    def _gauges(self) -> dict[str, Value]:
        now = monotonic()
        oldest = now - min(self.waiting.values(), default=now)
        return {"reclaim_oldest_wait_seconds": oldest, "reclaim_leader": self._leads()}
