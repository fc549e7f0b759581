"""Define the ``spec`` of EvictionStrategy. The defaults are CoreWeave's, from its documentation."""

from typing import Annotated, Final, Literal

from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec, TaintSpec
from webhook.policy.common import (
    EnforcementWord,
    KindGlobs,
    KindPatterns,
    Level,
    Model,
    NonEmpty,
    PolicySpec,
    Seconds,
    defaults_next_to,
)
from webhook.policy.schema_annotations import EnumDescriptions
from webhook.policy.terms import Enforcement

_default: Final = defaults_next_to(__file__)


class EvictionFindingsSpec(Model):
    """The strongest outcome of each finding; ``enforcement`` can lower it."""

    contradiction: Level = "deny"
    """Both labels at once."""
    bypassed: Level = "deny"
    """A toleration that defeats graceful eviction."""
    interrupted_state: Level = "deny"
    """Interruptible on stateful or distributed work."""
    grace_period: Level = "deny"
    """A grace period longer than the strategy allows."""
    sunk_tolerations: Level = "deny"
    """A DaemonSet on SUNK nodes lacks their tolerations."""
    no_effect: Level = "deny"
    """A label with a wrong name, value, or place."""


class EvictionStrategySpec(PolicySpec):
    """Checks the labels that control how CoreWeave evicts Pods."""

    enforcement: EnforcementWord = Enforcement.WARN
    """The strongest outcome of this policy. The default differs from other kinds."""
    findings: EvictionFindingsSpec = EvictionFindingsSpec()
    """The strongest outcome of each finding, at most `enforcement`."""
    interruptible: LabelSpec = LabelSpec(key="qos.coreweave.cloud/interruptable", value="true")
    """The label of Pods that may be deleted without their full grace period."""
    graceful: LabelSpec = LabelSpec(key="qos.coreweave.com/graceful-interruptible", value="true")
    """The label of Pods that get their full grace period."""
    bypassing_taints: tuple[TaintPatternSpec, ...] = _default("bypassingTaints", tuple[TaintPatternSpec, ...])
    """Taints. A Pod that tolerates one of them is evicted without its grace period."""
    drain_timeout_seconds: Seconds = 180
    """The time that maintenance waits for other Pods."""
    stateful: KindPatterns = KindGlobs(("StatefulSet.apps",))
    """Kinds whose Pods hold state, as Kind.group (globs)."""
    distributed: KindPatterns = _default("distributed", KindGlobs)
    """Kinds whose Pods run in lockstep, as Kind.group (globs). Indexed Jobs always do."""
    replicated: KindPatterns = _default("replicated", KindGlobs)
    """Kinds that count as stateful if they have one replica and a writable volume claim, as Kind.group (globs)."""
    sunk_nodes: Annotated[
        Literal["named", "all"],
        EnumDescriptions(named="those whose tolerations, nodeSelector or affinity name SUNK", all="every DaemonSet"),
    ] = "named"
    """Which DaemonSets run on SUNK nodes."""
    sunk_domain: NonEmpty = "sunk.coreweave.com"
    """The domain of SUNK's keys."""
    sunk_taints: tuple[TaintSpec, ...] = _default("sunkTaints", tuple[TaintSpec, ...])
    """Taints that DaemonSets on SUNK nodes must tolerate."""
    left_to_reserved_labels: tuple[NonEmpty, ...] = ()
    """Domains of a ReservedLabels policy, which this policy skips."""
