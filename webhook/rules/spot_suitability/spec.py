"""Define the ``spec`` of SpotSuitability."""

from typing import Annotated, Final, Self

from pydantic import Field, StrictInt, model_validator

from webhook.capacity.providers.schema import LabelSpec
from webhook.policy.common import EnforcementWord, Flag, Glob, KindGlob, Level, Model, NonEmpty, TargetingSpec
from webhook.policy.terms import Enforcement
from webhook.policy.workloads import RelativePath


class FaultToleranceSpec(Model):
    """Say what keeps the state of a driver outside its Pod: another Pod can go on with it."""

    annotations: dict[NonEmpty, str] = Field(default={})
    """Annotations of the workload, or of its Pod, that turn it on: key -> value."""
    member: str = ""
    """A field next to the driver's that enables it: gcsFaultToleranceOptions."""


class DriverSpec(Model):
    """Hold pods that lead the work of others, told by a label or by where their template is."""

    name: NonEmpty
    """For people: Spark driver."""
    label: LabelSpec | None = None
    """A label that such Pods carry."""
    member: str = ""
    """A member in the path of their pod template: headGroupSpec for spec.headGroupSpec.template."""

    fault_tolerance: FaultToleranceSpec | None = None
    """What keeps its state outside the Pod; with it, the Pod may be on spot."""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if self.label is None and not self.member:
            raise ValueError("say which Pods are meant: `label`, `member`, or both")
        return self


_RAY_FAULT_TOLERANCE: Final = FaultToleranceSpec.model_construct(
    annotations={"ray.io/ft-enabled": "true"}, member="gcsFaultToleranceOptions"
)
"""Source: https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/kuberay-gcs-ft.html"""

DEFAULT_DRIVERS: Final = tuple(
    DriverSpec.model_construct(
        name=name, label=LabelSpec.model_construct(key=key, value=value), member=member, fault_tolerance=tolerance
    )
    for name, key, value, member, tolerance in (
        ("Spark driver", "spark-role", "driver", "driver", None),
        ("Ray head", "ray.io/node-type", "head", "headGroupSpec", _RAY_FAULT_TOLERANCE),
        ("MPI launcher", "training.kubeflow.org/job-role", "launcher", "Launcher", None),
        ("Dask scheduler", "dask.org/component", "scheduler", "", None),
    )
)


SCHEDULING_GROUP: Final = "spec.schedulingGroup"
"""The field by which a Pod names a PodGroup of Kubernetes: its Pods start together, if the PodGroup says so."""


class GangSpec(Model):
    """Hold pods of one object that work only together, told by its kind or by a key."""

    name: NonEmpty
    """For people: JobSet."""
    kinds: tuple[KindGlob, ...] = ()
    """Kinds of objects, as Kind.group (globs)."""
    key: str = ""
    """A label or annotation of the object, or of its Pods; or `spec.schedulingGroup` of the Pods."""
    restarts: Flag = True
    """One lost Pod stops the others; with false they only start together."""
    elastic: RelativePath = ""
    """A field of the object that lets the others go on without a lost Pod."""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not (self.kinds or self.key):
            raise ValueError("say which objects are meant: `kinds`, `key`, or both")
        return self


DEFAULT_GANGS: Final = (
    GangSpec.model_construct(name="JobSet", kinds=("JobSet.jobset.x-k8s.io",)),
    GangSpec.model_construct(
        name="Trainer", kinds=("TrainJob.trainer.kubeflow.org", "*TrainingRuntime.trainer.kubeflow.org")
    ),
    GangSpec.model_construct(name="LeaderWorkerSet", kinds=("LeaderWorkerSet.leaderworkerset.x-k8s.io",)),
    GangSpec.model_construct(name="Training operator", kinds=("*Job.kubeflow.org",), elastic="spec.elasticPolicy"),
    GangSpec.model_construct(name="PodGroup", key="scheduling.x-k8s.io/pod-group"),
    GangSpec.model_construct(name="PodGroup of Kubernetes", key=SCHEDULING_GROUP, restarts=False),
    GangSpec.model_construct(name="Volcano", kinds=("Job.batch.volcano.sh",), restarts=False),
    GangSpec.model_construct(name="Kueue", key="kueue.x-k8s.io/queue-name", restarts=False),
)


class SuitabilityFindingsSpec(Model):
    """Hold the greatest outcome of each finding; ``enforcement`` lowers it further."""

    driver: Level = "deny"
    """The driver or head of a cluster of workers is on spot."""
    bare_pod: Level = "deny"
    """No controller makes the Pod again."""
    stateful_singleton: Level = "deny"
    """The only replica holds state."""
    few_replicas: Level = "deny"
    """Fewer replicas than minimumReplicas."""
    disruption_budget: Level = "deny"
    """No PodDisruptionBudget covers the Pods, several do, or it blocks every eviction."""
    readiness_probe: Level = "deny"
    """No container says when it is ready."""
    protection: Level = "deny"
    """An annotation that only stops voluntary disruption, as karpenter.sh/do-not-disrupt."""
    data_on_node: Level = "deny"
    """A hostPath whose name says that it holds data."""
    job_fails: Level = "deny"
    """A Job with backoffLimit 0, which one reclaim fails."""
    job_failure_policy: Level = "deny"
    """A Job without a podFailurePolicy that ignores disruptions; only recorded."""
    late_replacement: Level = "deny"
    """Pods with a long grace period that are replaced when they have ended; only recorded."""
    gang_split: Level = "deny"
    """Pods that work only together are partly on spot and partly on demand."""
    topology_spread: Level = "deny"
    """A topology spread that spot makes void; one that a rollout undoes is only recorded."""
    termination_handler: Level = "deny"
    """Node Termination Handler next to Karpenter."""


class SpotSuitabilitySpec(TargetingSpec):
    """Finds workloads that do not belong on spot capacity, or are not ready for a reclaim."""

    enforcement: EnforcementWord = Enforcement.WARN
    """The most that a finding of this policy may become. Unlike other kinds, warn by default."""
    findings: SuitabilityFindingsSpec = SuitabilityFindingsSpec.model_construct()
    """The most that single findings may become; enforcement lowers them further."""
    minimum_replicas: Annotated[StrictInt, Field(ge=1, le=1000)] = 3
    """Replicas that a service on spot has at least."""
    replicated: tuple[KindGlob, ...] = (
        "Deployment.apps",
        "ReplicaSet.apps",
        "StatefulSet.apps",
        "ReplicationController",
        "Rollout.argoproj.io",
    )
    """Kinds whose spec.replicas says how many Pods of one template there are, as Kind.group (globs)."""
    stateful: tuple[KindGlob, ...] = ("StatefulSet.apps",)
    """Kinds whose Pods hold state, as Kind.group (globs). Pods that can write to a claim do, too."""
    drivers: tuple[DriverSpec, ...] = DEFAULT_DRIVERS
    """Pods that lead the work of others."""
    gangs: tuple[GangSpec, ...] = DEFAULT_GANGS
    """Pods of one object that work only together."""
    gang_leaders: tuple[Glob, ...] = (
        *("*driver", "*head", "headgroupspec", "*launcher", "*leader", "leadertemplate", "*master", "chief", "ps"),
        *("coordinator", "*scheduler", "evaluator", "submitter*", "*initializer"),
    )
    """Names of parts of a gang that lead the others or run before them (globs, in small letters): they may be on
    demand while the others are on spot."""
    protections: dict[NonEmpty, str] = Field(
        default={"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    )
    """Annotations of Pods that stop voluntary disruption only: key -> value."""
    data_volumes: tuple[Glob, ...] = (
        *("data", "data-*", "*-data", "*checkpoint*", "*ckpt*", "*results", "*outputs", "*storage*", "db", "*-db"),
        *("*database*", "*/data", "/data/*", "/var/lib/*"),
    )
    """Names and mount paths of hostPath volumes that hold data (globs)."""
    scratch_volumes: tuple[Glob, ...] = (
        *("istio-data", "/var/lib/istio/*"),  # what Istio's proxy makes anew whenever it starts
        *("*cache*", "*tmp*", "*temp*", "*scratch*", "/dev", "/dev/*", "/sys*", "/proc*", "/run*", "/var/run*"),
        *("/etc*", "/lib/modules*", "/var/log*", "/var/lib/docker*", "/var/lib/containers*", "/var/lib/kubelet*"),
    )
    """Names and mount paths of hostPath volumes that hold none, whatever else their name says (globs)."""
    termination_handlers: tuple[NonEmpty, ...] = ("node-termination-handler",)
    """Parts of the image names of Node Termination Handler."""
