"""Register the metrics that `metrics.yaml` declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

Value: TypeAlias = float | datetime | Mapping[str, float] | Mapping[tuple[str, str], float] | None
"""A number or a time, or several by their label values. A metric without a value isn't shown."""

disable_created_metrics()  # type: ignore[no-untyped-call]


class Declared(msgspec.Struct, frozen=True):
    """A metric: its help text, the names of its labels, and the limits of its buckets."""

    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class DeclaredPart(msgspec.Struct, frozen=True):
    """The metrics of a part of the program, by name. ``gauges`` and ``totals`` are read at each scrape."""

    counters: dict[str, Declared] = {}
    histograms: dict[str, Declared] = {}
    gauges: dict[str, Declared] = {}
    totals: dict[str, Declared] = {}


DECLARED: Final = msgspec.yaml.decode(
    Path(__file__).with_name("metrics.yaml").read_bytes(), type=dict[str, DeclaredPart]
)


class MetricsOf(Collector):
    """The metrics of a part of the program: counters and histograms by name, and a collector of the others.

    Args:
        read: returns the values of gauges and totals by name, at each scrape.
    """

    def __init__(self, part: str, registry: CollectorRegistry, read: Callable[[], Mapping[str, Value]] = dict) -> None:
        self._declared = DECLARED[part]
        self._read = read
        self.counters = {
            name: Counter(f"spotgate_{name}", metric.help, metric.labels, registry=registry)
            for name, metric in self._declared.counters.items()
        }
        self.histograms = {
            name: Histogram(f"spotgate_{name}", metric.help, metric.labels, buckets=metric.buckets, registry=registry)
            for name, metric in self._declared.histograms.items()
        }
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges and totals that have a value."""
        values = self._read()
        for kind, declared in (
            (GaugeMetricFamily, self._declared.gauges),
            (CounterMetricFamily, self._declared.totals),
        ):
            for name, metric in declared.items():
                if (value := values.get(name)) is None:
                    continue
                family = kind(f"spotgate_{name}", metric.help, labels=metric.labels)
                for key, number in value.items() if isinstance(value, Mapping) else [((), value)]:
                    seconds = number.timestamp() if isinstance(number, datetime) else number
                    family.add_metric([key] if isinstance(key, str) else key, float(seconds))
                yield family
