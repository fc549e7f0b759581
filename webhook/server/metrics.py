"""Count what happens on the request path. Gauges of the server's state are in `webhook.server.ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from webhook.context import Phase
from webhook.decision import Outcome

if TYPE_CHECKING:
    from webhook.decision import Decision

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds. A decision takes under a millisecond, one that reads the cluster some tens; 3 s is the shipped timeout."""

_RESOURCES: Final = 200
"""Resources with a series of their own; a cluster has about as many. Their names come from outside: hence a bound."""

_CALLERS: Final = ("unauthenticated", "authenticated")


class Metrics:
    """The counters. Their children are cached: looking one up costs more than counting."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"spotgate_{name}", help_text, labels, registry=registry)

        self._decisions = counter("decisions", "Reviews answered.", "phase", "outcome", "resource", "caller")
        self._findings = counter("findings", "Findings of policies.", "policy", "id", "outcome")
        self.unknown = counter("unknown", "Findings that stand for something that could not be known.")
        self._errors = counter("errors", "Reviews that failed because of a bug.", "phase")
        self._rejected = counter("rejected", "Requests that were no answerable review.", "reason")
        self._shed = counter("shed", "Requests told to come again (429).", "reason")
        self.recorded = counter("recorded", "Reviews recorded for `spotgate replay`.")
        self._unrecorded = counter("unrecorded", "Reviews left out of the recording.", "reason")
        self._cut = counter("connections_cut", "Connections ended without an answer.", "reason")
        self._seconds = Histogram(
            "spotgate_request_seconds",
            "From a review's head to its answer.",
            ("phase",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._phase_seconds = {phase: self._seconds.labels(phase.value) for phase in Phase}
        for phase in Phase:
            self._errors.labels(phase.value)  # A counter that was never zero can't be alerted on.
        self._decision_children: dict[tuple[Phase, str, str, str], Counter] = {}
        self._finding_children: dict[tuple[str, ...], Counter] = {}
        self._resources: set[str] = set()

    def decided(self, phase: Phase, resource: str, decision: Decision, seconds: float, *, authenticated: bool) -> None:
        """Count one decision."""
        if resource not in self._resources:
            if len(self._resources) < _RESOURCES:
                self._resources.add(resource)
            else:
                resource = "other"
        key = (phase, _outcome(decision), resource, _CALLERS[authenticated])
        child = self._decision_children.get(key)
        if child is None:
            child = self._decision_children[key] = self._decisions.labels(*key)
        child.inc()
        self._phase_seconds[phase].observe(seconds)
        for finding in decision.findings:
            self._found(finding.policy, finding.id, str(finding.outcome))
        if decision.unknown:
            self.unknown.inc(decision.unknown)

    def _found(self, *labels: str) -> None:
        child = self._finding_children.get(labels)
        if child is None:
            child = self._finding_children[labels] = self._findings.labels(*labels)
        child.inc()

    def failed(self, phase: Phase) -> None:
        """Count a review that a bug kept from being answered."""
        self._errors.labels(phase.value).inc()

    def rejected(self, reason: str) -> None:
        """Count a request that was rejected before judging."""
        self._rejected.labels(reason).inc()

    def shed(self, reason: str) -> None:
        """Count a request that was answered with 429."""
        self._shed.labels(reason).inc()

    def unrecorded(self, reason: str) -> None:
        """Count a review that should have been recorded, and was not."""
        self._unrecorded.labels(reason).inc()

    def cut(self, reason: str) -> None:
        """Count a connection that was ended without an answer."""
        self._cut.labels(reason).inc()


def _outcome(decision: Decision) -> str:
    if decision.denied:
        return "denied"
    if decision.patch:
        return "patched"
    return "warned" if decision.of(Outcome.WARN) else "allowed"
