"""Count the requests. `webhook.server.ops.port` reads the gauges of the server's state."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter

from webhook.model.decision import Decision, Outcome
from webhook.rules.context import Phase
from webhook.runtime.log import TEXT_LENGTH
from webhook.runtime.metrics import MetricsOf

if TYPE_CHECKING:
    from webhook.model.review import Request

_RESOURCES: Final = 200
"""The maximum number of resources with a separate series, about as many as a cluster has. Clients choose the names."""

_FINDING_SERIES: Final = 500
"""The maximum number of finding series with a separate namespace; others have the namespace ``other``. Clients choose
namespaces. A scrape of 1,000 series blocks the event loop for 10 ms."""

WOULD_DENY: Final = "would deny"
"""The outcome of findings that mode `deny` would deny."""

_OTHER: Final = "other"
_BREAK_GLASS: Final = {"break-glass": "used", "break-glass-refused": "refused"}
"""Results of break-glass by audit annotation."""

Series = TypeVar("Series")


class Metrics:
    """Counters and latencies of the reviews.

    Attributes:
        registry: the metrics that ``/metrics`` serves.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        metrics = MetricsOf("requests", self.registry)
        self._counters = metrics.counters
        self._seconds = {phase: metrics.histograms["request_seconds"].labels(phase) for phase in Phase}
        self._series: dict[tuple[str, ...], Counter] = {}
        self._resources: set[str] = set()
        self._finding_series: set[tuple[str, ...]] = set()
        # Start these counters at zero, because alerts compute increases.
        for phase in Phase:
            self.count("errors", phase, by=0)
        for result in _BREAK_GLASS.values():
            self.count("break_glass", result, by=0)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Increase a counter with these label values. Thread-safe."""
        series = self._series.get((name, *labels))
        if series is None:  # cached, because `labels` takes ten times as long
            counter = self._counters[name]
            series = self._series[name, *labels] = counter.labels(*labels) if labels else counter
        series.inc(by)

    def answered(self, request: Request, phase: Phase, seconds: float) -> None:
        """Record the time of one call, which can have decided both phases."""
        if not request.is_probe:
            self._seconds[phase].observe(seconds)

    def decided(self, request: Request, phase: Phase, decision: Decision, *, authenticated: bool) -> str:
        """Count one decision, except for a probe of `spotgate doctor`. Return its effect, such as denied."""
        outcome = _outcome(decision)
        if request.is_probe:
            return outcome
        resource = request.path[:TEXT_LENGTH]
        if not _has_room(self._resources, resource, _RESOURCES):
            resource = _OTHER
        self.count("decisions", phase, outcome, resource, "authenticated" if authenticated else "unauthenticated")
        for finding in decision.findings:
            labels = (finding.policy, finding.id, request.namespace[:TEXT_LENGTH])
            outcome_label = str(finding.outcome)
            if not _has_room(self._finding_series, (*labels, outcome_label), _FINDING_SERIES):
                labels = (finding.policy, finding.id, _OTHER)
            self.count("findings", *labels, outcome_label)
            if finding.would_deny:
                self.count("would_deny", *labels)
        if decision.unknown:
            self.count("unknown", by=decision.unknown)
        for annotation in decision.audit:
            if annotation in _BREAK_GLASS:
                self.count("break_glass", _BREAK_GLASS[annotation])
        return outcome

    def findings(self) -> dict[str, collections.Counter[str]]:
        """Return the number of findings of each policy by outcome. Thread-safe."""
        by_policy: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for name in ("findings", "would_deny"):
            for metric in self._counters[name].collect():
                for sample in metric.samples:
                    outcome = sample.labels.get("outcome", WOULD_DENY)
                    by_policy[sample.labels["policy"]][outcome] += int(sample.value)
        return by_policy


def _has_room(series: set[Series], key: Series, limit: int) -> bool:
    """Add a series unless the limit is reached. Return whether the set contains the series."""
    if key not in series and len(series) >= limit:
        return False
    series.add(key)
    return True


def _outcome(decision: Decision) -> str:
    if decision.denied:
        return "denied"
    if decision.patch:
        return "patched"
    return "warned" if decision.of(Outcome.WARN) else "allowed"
