"""Count what happens on the request path. Gauges of the server's state are in `webhook.server.ops`."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from webhook.context import Phase
from webhook.decision import Outcome
from webhook.server.log import TEXT_LENGTH

if TYPE_CHECKING:
    from webhook.decision import Decision, Finding
    from webhook.review import Request

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds. A decision takes under a millisecond, one that reads the cluster some tens; 3 s is the shipped timeout."""

_RESOURCES: Final = 200
"""Resources with a series of their own; a cluster has about as many. Their names come from outside: hence a bound."""

_FINDING_SERIES: Final = 500
"""Series of findings with a namespace of their own; those beyond it are in the namespace ``other``, as namespaces come
from outside, too. To write a thousand of them for Prometheus takes the event loop 10 ms."""

WOULD_DENY: Final = "would deny"
"""Stands among the outcomes of findings for those that only the policy's enforcement keeps from denying."""

_OTHER: Final = "other"
_CALLERS: Final = ("unauthenticated", "authenticated")
_BREAK_GLASS: Final = {"break-glass": "used", "break-glass-refused": "refused"}
"""Results by the audit annotation that tells of them."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # when each series began: as many lines again, and nobody asks


class Metrics:
    """The counters. Their children are cached: looking one up costs more than counting."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"spotgate_{name}", help_text, labels, registry=registry)

        found = ("policy", "id", "resource_namespace")
        self._decisions = counter("decisions", "Reviews answered.", "phase", "outcome", "resource", "caller")
        self._findings = counter("findings", "Findings of policies.", *found, "outcome")
        self._would_deny = counter(
            "would_deny", "Findings that would deny if the enforcement of their policy were deny.", *found
        )
        self.unknown = counter("unknown", "Findings that stand for something that could not be known.")
        break_glass = counter(
            "break_glass", "Reviews in which break-glass turned a denial into a warning, or was refused.", "result"
        )
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
        # Counters that were never zero can't be alerted on.
        self._break_glass = {annotation: break_glass.labels(result) for annotation, result in _BREAK_GLASS.items()}
        for phase in Phase:
            self._errors.labels(phase.value)
        self._decision_children: dict[tuple[Phase, str, str, str], Counter] = {}
        self._finding_children: dict[tuple[str, str, str, Outcome, bool], tuple[Counter, ...]] = {}
        self._resources: set[str] = set()

    def decided(
        self, request: Request, phase: Phase, decision: Decision, seconds: float, *, authenticated: bool
    ) -> str:
        """Count one decision. Return its effect on the request in a word: denied, patched, warned or allowed."""
        outcome = _outcome(decision)
        resource = request.path[:TEXT_LENGTH]
        if resource not in self._resources:
            if len(self._resources) < _RESOURCES:
                self._resources.add(resource)
            else:
                resource = _OTHER
        key = (phase, outcome, resource, _CALLERS[authenticated])
        child = self._decision_children.get(key)
        if child is None:
            child = self._decision_children[key] = self._decisions.labels(*key)
        child.inc()
        self._phase_seconds[phase].observe(seconds)
        for finding in decision.findings:
            self._found(finding, request.namespace[:TEXT_LENGTH])
        if decision.unknown:
            self.unknown.inc(decision.unknown)
        if decision.audit:
            for annotation in self._break_glass.keys() & decision.audit.keys():
                self._break_glass[annotation].inc()
        return outcome

    def _found(self, finding: Finding, namespace: str) -> None:
        key = (finding.policy, finding.id, namespace, finding.outcome, finding.would_deny)
        children = self._finding_children.get(key)
        if children is None:
            is_full = len(self._finding_children) >= _FINDING_SERIES
            children = self._counters_of(finding, _OTHER if is_full else namespace)
            if not is_full:
                self._finding_children[key] = children
        for child in children:
            child.inc()

    def _counters_of(self, finding: Finding, namespace: str) -> tuple[Counter, ...]:
        found = (finding.policy, finding.id, namespace)
        counters = self._findings.labels(*found, str(finding.outcome))
        return (counters, self._would_deny.labels(*found)) if finding.would_deny else (counters,)

    def findings(self) -> dict[str, Counts[str]]:
        """Return the findings so far, by policy."""
        by_policy: dict[str, Counts[str]] = defaultdict(Counts)
        for family in (*self._findings.collect(), *self._would_deny.collect()):
            for sample in family.samples:
                by_policy[sample.labels["policy"]][sample.labels.get("outcome", WOULD_DENY)] += int(sample.value)
        return by_policy

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
