"""Define the metrics of on-demand floors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.controller.ledger import Ledger

_BUCKETS: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""In seconds. A Pod waits for tens of milliseconds, or until another leader is elected."""


class ControllerMetrics(Collector):
    """The metrics of one controller. It collects the gauges, which read their values at each scrape."""

    def __init__(self, registry: CollectorRegistry, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._ledger = ledger
        self._leads = leads
        text = "How long Pods waited for their assignment."
        self.waited = Histogram("spotgate_floor_gate_seconds", text, registry=registry, buckets=_BUCKETS)
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        pods = GaugeMetricFamily(
            "spotgate_floor_pods", "Living Pods with an on-demand floor; gated ones wait.", labels=["assigned"]
        )
        for assigned, count in self._ledger.tally().items():
            pods.add_metric([assigned], count)
        yield pods
        oldest = "For how long the Pod that waits longest has waited."
        yield GaugeMetricFamily("spotgate_floor_oldest_gate_seconds", oldest, value=self._ledger.oldest())
        yield GaugeMetricFamily("spotgate_floor_leader", "1 for a leader that sees the cluster.", value=self._leads())
