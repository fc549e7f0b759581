"""Define the ``spec`` of SpotSuitability."""

from typing import Annotated, Final

import msgspec

from webhook.base.globs import Globs
from webhook.capacity.providers.schema import LabelSpec
from webhook.policy.common import (
    EnforcementWord,
    Flag,
    Glob,
    KindGlob,
    KindGlobs,
    KindPatterns,
    Level,
    Model,
    NonEmpty,
    Patterns,
    TargetingSpec,
    defaults_next_to,
)
from webhook.policy.schema_annotations import Field
from webhook.policy.terms import Enforcement
from webhook.policy.workloads import RelativePath

_default: Final = defaults_next_to(__file__)


class FaultToleranceSpec(Model):
    """Settings that keep the state of a driver outside its Pod, so that another Pod can continue."""

    annotations: dict[NonEmpty, str] = {}
    """Annotations of the workload or its Pod: key -> value."""
    member: str = ""
    """A field next to the driver's, such as `gcsFaultToleranceOptions`."""


class DriverSpec(Model):
    """Pods that lead the work of others, identified by a label or by the path of their template."""

    name: NonEmpty
    """A display name, such as Spark driver."""
    label: LabelSpec | None = None
    """A label of these Pods."""
    member: str = ""
    """A member of their template's path: `headGroupSpec` in `spec.headGroupSpec.template`."""

    fault_tolerance: FaultToleranceSpec | None = None
    """Settings that keep the state outside the Pod, so that it can be on spot."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.label is None and not self.member:
            raise ValueError("set `label`, `member`, or both")


class GangSpec(Model):
    """Pods of one object that work only together, identified by its kind or by a key."""

    name: NonEmpty
    """A display name, such as JobSet."""
    kinds: tuple[KindGlob, ...] = ()
    """Kinds, as Kind.group (globs)."""
    key: str = ""
    """A label or annotation of the object or its Pods, or `spec.schedulingGroup`."""
    restarts: Flag = True
    """A lost Pod stops the others. If false, they only start together."""
    elastic: RelativePath = ""
    """A field that lets the others continue without a lost Pod."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if not (self.kinds or self.key):
            raise ValueError("set `kinds`, `key`, or both")


class SuitabilityFindingsSpec(Model):
    """The strongest outcome of each finding; ``enforcement`` can lower it."""

    driver: Level = "deny"
    """A driver or head is on spot."""
    bare_pod: Level = "deny"
    """The Pod has no controller."""
    stateful_singleton: Level = "deny"
    """The only replica holds state."""
    few_replicas: Level = "deny"
    """Fewer replicas than `minimumReplicas`."""
    disruption_budget: Level = "deny"
    """The PodDisruptionBudget is missing, blocks evictions, or isn't the only one."""
    readiness_probe: Level = "deny"
    """No container has a readiness probe."""
    protection: Level = "deny"
    """An annotation that stops only autoscalers."""
    data_on_node: Level = "deny"
    """A hostPath with data."""
    job_fails: Level = "deny"
    """A Job that a single reclaim makes fail."""
    job_failure_policy: Level = "deny"
    """A Job that counts disruptions as failures; only recorded."""
    late_replacement: Level = "deny"
    """Replacements wait for Pods with a long grace period; only recorded."""
    notice_unused: Level = "deny"
    """A checkpointing Pod needs more time than the budget, and isn't told of the notice; at most a warning."""
    gang_split: Level = "deny"
    """Pods that work only together are partly on spot."""
    topology_spread: Level = "deny"
    """A topology spread without effect on spot."""
    termination_handler: Level = "deny"
    """Node Termination Handler and Karpenter both drain a node."""


class SpotSuitabilitySpec(TargetingSpec):
    """Finds workloads that aren't suitable for spot capacity, or aren't ready for a reclaim."""

    enforcement: EnforcementWord = Enforcement.WARN
    """The strongest outcome of this policy. The default differs from other kinds."""
    findings: SuitabilityFindingsSpec = SuitabilityFindingsSpec()
    """The strongest outcome of each finding, at most `enforcement`."""
    minimum_replicas: Annotated[int, Field(strict=True, ge=1, le=1000)] = 3
    """The minimum replicas of a service on spot."""
    replicated: KindPatterns = _default("replicated", KindGlobs)
    """Kinds with `spec.replicas`, as Kind.group (globs)."""
    stateful: KindPatterns = KindGlobs(("StatefulSet.apps",))
    """Stateful kinds, as Kind.group (globs). Pods with a writable claim are stateful, too."""
    drivers: tuple[DriverSpec, ...] = _default("drivers", tuple[DriverSpec, ...])
    """Pods that lead the work of others."""
    gangs: tuple[GangSpec, ...] = _default("gangs", tuple[GangSpec, ...])
    """Pods of one object that work only together."""
    gang_leaders: tuple[Glob, ...] = _default("gangLeaders", tuple[str, ...])
    """Parts of a gang that can be on demand (lowercase globs)."""
    protections: dict[NonEmpty, str] = msgspec.field(default_factory=lambda: _default("protections", dict[str, str]))
    """Annotations that stop only voluntary disruption: key -> value."""
    data_volumes: Patterns = _default("dataVolumes", Globs)
    """Names and mount paths of hostPath volumes with data (globs)."""
    scratch_volumes: Patterns = _default("scratchVolumes", Globs)
    """Names and mount paths of hostPath volumes without data (globs)."""
    termination_handlers: tuple[NonEmpty, ...] = ("node-termination-handler",)
    """Parts of Node Termination Handler's image names."""
