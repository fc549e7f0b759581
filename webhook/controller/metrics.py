"""Register the metrics of on-demand floors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.runtime.metrics import MetricsOf

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry, Histogram

    from webhook.controller.ledger import Ledger
    from webhook.runtime.metrics import Value


def floor_metrics(registry: CollectorRegistry, ledger: Ledger, leads: Callable[[], bool]) -> Histogram:
    """Register the metrics of one controller. Return the histogram of the seconds that Pods waited."""

    def read() -> dict[str, Value]:
        return {"floor_pods": ledger.tally(), "floor_oldest_gate_seconds": ledger.oldest(), "floor_leader": leads()}

    return MetricsOf("floor", registry, read).histograms["floor_gate_seconds"]
