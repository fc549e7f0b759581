"""Define the ``spec`` of EvictionStrategy. The defaults are CoreWeave's, from its documentation."""

from typing import Annotated, Final, Literal

from webhook.base.globs import Globs
from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec, TaintSpec
from webhook.kube.tolerations import NO_EXECUTE
from webhook.policy.common import EnforcementWord, KindPatterns, Level, Model, NonEmpty, PolicySpec, Seconds
from webhook.policy.schema_annotations import EnumDescriptions
from webhook.policy.terms import Enforcement

_EVICT: Final = "node.coreweave.cloud/evict"
_RESERVED: Final = "node.coreweave.cloud/reserved"
_LOCK: Final = "sunk.coreweave.com/lock"
_DISTRIBUTED: Final = (
    *("*Job.kubeflow.org", "TrainJob.trainer.kubeflow.org", "JobSet.jobset.x-k8s.io"),
    *("LeaderWorkerSet.leaderworkerset.x-k8s.io", "Job.batch.volcano.sh"),
)
_REPLICATED: Final = ("Deployment.apps", "ReplicaSet.apps", "ReplicationController", "Rollout.argoproj.io")


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
    bypassing_taints: tuple[TaintPatternSpec, ...] = (
        TaintPatternSpec(key=_EVICT, value="true", effect=NO_EXECUTE),
        TaintPatternSpec(key=_RESERVED, effect=NO_EXECUTE),
    )
    """Taints. A Pod that tolerates one of them is evicted without its grace period."""
    drain_timeout_seconds: Seconds = 180
    """The time that maintenance waits for other Pods."""
    stateful: KindPatterns = Globs(("StatefulSet.apps",))
    """Kinds whose Pods hold state, as Kind.group (globs)."""
    distributed: KindPatterns = Globs(_DISTRIBUTED)
    """Kinds whose Pods work in lockstep, as Kind.group (globs). Indexed Jobs always do."""
    replicated: KindPatterns = Globs(_REPLICATED)
    """Kinds that count as stateful if they have one replica and a writable volume claim, as Kind.group (globs)."""
    sunk_nodes: Annotated[
        Literal["named", "all"],
        EnumDescriptions(named="those whose tolerations, nodeSelector or affinity name SUNK", all="every DaemonSet"),
    ] = "named"
    """Which DaemonSets run on SUNK nodes."""
    sunk_domain: NonEmpty = "sunk.coreweave.com"
    """The domain of SUNK's keys."""
    sunk_taints: tuple[TaintSpec, ...] = (
        TaintSpec(key=_LOCK, value="true", effect=NO_EXECUTE),
        TaintSpec(key="is_cpu_compute", effect="NoSchedule"),
        TaintSpec(key="is_gpu", value="true", effect="PreferNoSchedule"),
        TaintSpec(key=_RESERVED, effect=NO_EXECUTE),
    )
    """Taints that DaemonSets on SUNK nodes must tolerate."""
    left_to_reserved_labels: tuple[NonEmpty, ...] = ()
    """Domains of a ReservedLabels policy, which this policy skips."""
