"""Count what happens on the request path. Gauges of the server's state are in `webhook.server.ops`."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from webhook.model.decision import Outcome
from webhook.rules.context import Phase
from webhook.server.log import TEXT_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from webhook.model.decision import Decision
    from webhook.model.review import Request

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, float("inf"))
"""Seconds. A decision takes under a millisecond, one that reads the cluster some tens; 3 s is the shipped timeout."""

_RESOURCES: Final = 200
"""Resources with a series of their own; a cluster has about as many. Their names come from outside: hence a bound."""

_FINDING_SERIES: Final = 500
"""Series of findings with a namespace of their own; those beyond it are in the namespace ``other``, as namespaces come
from outside, too. To write a thousand of them for Prometheus takes the event loop 10 ms."""

WOULD_DENY: Final = "would deny"
"""The outcome that is shown of findings that only the mode keeps from denying."""

_OTHER: Final = "other"
_BREAK_GLASS: Final = {"break-glass": "used", "break-glass-refused": "refused"}
"""Results by the audit annotation that tells of them."""

_FOUND: Final = ("policy", "id", "resource_namespace")
_COUNTERS: Final = {
    "decisions": ("Reviews answered.", "phase", "outcome", "resource", "caller"),
    "findings": ("Findings of policies.", *_FOUND, "outcome"),
    "would_deny": ("Findings that only the Mode keeps from denying.", *_FOUND),
    "unknown": ("Findings that stand for something that could not be known.",),
    "break_glass": ("Reviews in which break-glass turned a denial into a warning, or was refused.", "result"),
    "errors": ("Reviews that failed because of a bug.", "phase"),
    "rejected": ("Requests that were no answerable review.", "reason"),
    "shed": ("Requests told to come again (429).", "reason"),
    "recorded": ("Reviews recorded for `spotgate replay`.",),
    "unrecorded": ("Reviews left out of the recording.", "reason"),
    "connections_cut": ("Connections ended without an answer.", "reason"),
}
"""The meaning and the labels of each counter."""


class Metrics(Collector):
    """Count in plain dicts, of which `collect` makes the families of Prometheus.

    Attributes:
        registry: what is served as ``/metrics``.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counts: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in _COUNTERS}
        self._seconds = {phase: [0] * len(_BUCKETS) for phase in Phase}
        self._sums = dict.fromkeys(Phase, 0.0)
        self._resources: set[str] = set()
        # Counters that were never zero can't be alerted on.
        for phase in Phase:
            self.count("errors", phase.value, by=0)
        for result in _BREAK_GLASS.values():
            self.count("break_glass", result, by=0)
        for name in ("unknown", "recorded"):
            self.count(name, by=0)
        self.registry.register(self)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Add to a counter, for these values of its labels."""
        self._counts[name][labels] += by

    def decided(
        self, request: Request, phase: Phase, decision: Decision, seconds: float, *, authenticated: bool
    ) -> str:
        """Count one decision, unless doctor probes. Return its effect: denied, patched, warned or allowed."""
        outcome = _outcome(decision)
        if request.is_probe:
            return outcome
        resource = request.path[:TEXT_LENGTH]
        if resource not in self._resources:
            if len(self._resources) < _RESOURCES:
                self._resources.add(resource)
            else:
                resource = _OTHER
        self.count("decisions", str(phase), outcome, resource, "authenticated" if authenticated else "unauthenticated")
        self._seconds[phase][bisect_left(_BUCKETS, seconds)] += 1
        self._sums[phase] += seconds
        for finding in decision.findings:
            found = (finding.policy, finding.id, request.namespace[:TEXT_LENGTH])
            counts = self._counts["findings"]
            if (*found, str(finding.outcome)) not in counts and len(counts) >= _FINDING_SERIES:
                found = (finding.policy, finding.id, _OTHER)
            self.count("findings", *found, str(finding.outcome))
            if finding.would_deny:
                self.count("would_deny", *found)
        if decision.unknown:
            self.count("unknown", by=decision.unknown)
        if decision.audit:
            for annotation in _BREAK_GLASS.keys() & decision.audit.keys():
                self.count("break_glass", _BREAK_GLASS[annotation])
        return outcome

    def findings(self) -> dict[str, Counter[str]]:
        """Return the findings so far, by policy. Safe in a thread."""
        by_policy: dict[str, Counter[str]] = defaultdict(Counter)
        for (policy, _, _, outcome), number in dict(self._counts["findings"]).items():
            by_policy[policy][outcome] += number
        for (policy, *_), number in dict(self._counts["would_deny"]).items():
            by_policy[policy][WOULD_DENY] += number
        return by_policy

    def collect(self) -> Iterator[Metric]:
        """Yield the counters as they are now."""
        for name, (meaning, *labels) in _COUNTERS.items():
            family = CounterMetricFamily(f"spotgate_{name}", meaning, labels=labels)
            for values, number in dict(self._counts[name]).items():  # the recorder's thread counts, too
                family.add_metric(values, number)
            yield family
        seconds = HistogramMetricFamily(
            "spotgate_request_seconds", "From a review's head to its answer.", labels=["phase"]
        )
        for phase, numbers in self._seconds.items():
            buckets = zip(map(floatToGoString, _BUCKETS), accumulate(numbers), strict=True)
            seconds.add_metric([phase.value], list(buckets), self._sums[phase])
        yield seconds


def _outcome(decision: Decision) -> str:
    if decision.denied:
        return "denied"
    if decision.patch:
        return "patched"
    return "warned" if decision.of(Outcome.WARN) else "allowed"
