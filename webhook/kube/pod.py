"""Define the types of the Pod fields that spotgate reads. `webhook.kube.pod_decoding` decodes them.

Field names are those of the API. ``None`` is an absent or null field.

Source: https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.37/#pod-v1-core
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

DEFAULT_GRACE_SECONDS: Final = 30
"""The default of ``terminationGracePeriodSeconds``, which the API server sets before it calls webhooks."""

COMPLETING: Final = ("Never", "OnFailure")  # the restart policies of Pods that run to completion

ResourceQuantity: TypeAlias = str | int | float

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


class OwnerReference(msgspec.Struct, frozen=True):
    """An owner of the object. ``controller`` marks the managing controller."""

    kind: str = ""
    name: str = ""
    apiVersion: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        """Return the API group, or an empty string for the core group."""
        return self.apiVersion.rpartition("/")[0]

    @property
    def group_kind(self) -> str:
        """Return the kind and group: ``ReplicaSet.apps``, ``ReplicationController``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class ObjectMeta(msgspec.Struct):
    """The metadata of an object."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages the object, or None."""
        for owner in self.ownerReferences or ():
            if owner.controller:
                return owner
        return None


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A toleration. Empty fields mean: operator ``Equal``, all effects, and, with ``Exists``, all keys."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    tolerationSeconds: int | None = None


class Requirement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node selector requirement. The operator is In, NotIn, Exists, DoesNotExist, Gt, or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    @property
    def label(self) -> tuple[str, str] | None:
        """Return the equivalent nodeSelector entry, or None if there is none."""
        return (self.key, self.values[0]) if self.operator == "In" and self.values and len(self.values) == 1 else None


class NodeSelectorTerm(msgspec.Struct, omit_defaults=True):
    """ANDed requirements. A term without requirements matches no node."""

    matchExpressions: list[Requirement] | None = None
    matchFields: list[Requirement] | None = None


class NodeSelector(msgspec.Struct, omit_defaults=True):
    """ORed terms."""

    terms: list[NodeSelectorTerm] | None = msgspec.field(default=None, name="nodeSelectorTerms")

    @property
    def nodeSelectorTerms(self) -> list[NodeSelectorTerm]:  # noqa: N802 - the API's name
        """Return the terms. The API server sends an empty list as null, and rejects it after admission."""
        return self.terms or []


class PreferredTerm(msgspec.Struct):
    """A preference with its weight (1 to 100)."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(msgspec.Struct, omit_defaults=True):
    """The node affinity: required and preferred terms."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredTerm] | None = None


class Affinity(msgspec.Struct, omit_defaults=True):
    """The affinity. spotgate doesn't read Pod affinity and anti-affinity."""

    nodeAffinity: NodeAffinity | None = None


class Sleep(msgspec.Struct, frozen=True):
    """The native ``sleep`` action of a lifecycle handler."""

    seconds: int = 0


class ExecAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command to run in the container."""

    command: tuple[str, ...] | None = None


class Handler(msgspec.Struct, omit_defaults=True):
    """A lifecycle handler. At most one field is set. spotgate doesn't read other handlers."""

    sleep: Sleep | None = None
    exec: ExecAction | None = None


class Lifecycle(msgspec.Struct, omit_defaults=True):
    """A container's lifecycle hooks."""

    preStop: Handler | None = None
    postStart: Handler | None = None
    stopSignal: str | None = None


class Resources(msgspec.Struct):
    """Compute resources. Quantities stay as written."""

    limits: dict[str, ResourceQuantity] | None = None
    requests: dict[str, ResourceQuantity] | None = None


class ContainerPort(msgspec.Struct, frozen=True):
    """A declared port."""

    containerPort: int = 0


class ContainerProbe(msgspec.Struct, frozen=True):
    """A probe of a container. spotgate doesn't read its fields."""


class VolumeMount(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mount of a volume in a container."""

    name: str = ""
    mountPath: str = ""
    readOnly: bool | None = None


class Container(msgspec.Struct):
    """An init, app, or ephemeral container."""

    name: str = ""
    image: str = ""
    ports: list[ContainerPort] | None = None
    lifecycle: Lifecycle | None = None
    resources: Resources | None = None
    restartPolicy: str | None = None
    readinessProbe: ContainerProbe | None = None
    volumeMounts: list[VolumeMount] | None = None


class PodOS(msgspec.Struct, frozen=True):
    """The Pod's operating system: linux or windows."""

    name: str = ""


class EmptyDir(msgspec.Struct, frozen=True):
    """A volume on the node, deleted with the Pod. ``medium`` is empty, ``Memory``, or huge pages."""

    medium: str = ""


class HostPath(msgspec.Struct, frozen=True):
    """A file or directory on the node."""

    type: str | None = None


class ClaimSource(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim, which outlives the Pod."""

    claimName: str = ""
    readOnly: bool | None = None


class FieldRef(msgspec.Struct, frozen=True):
    """A field of the Pod."""

    fieldPath: str = ""


class DownwardFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a downward API volume. ``path`` is relative to the volume."""

    path: str = ""
    fieldRef: FieldRef | None = None


class DownwardApi(msgspec.Struct, frozen=True):
    """A volume with fields of the Pod as files, which the kubelet updates."""

    items: list[DownwardFile] | None = None


class Volume(msgspec.Struct, frozen=True, omit_defaults=True):
    """A volume. spotgate doesn't read other sources (configMap, projected, csi)."""

    name: str = ""
    emptyDir: EmptyDir | None = None
    hostPath: HostPath | None = None
    persistentVolumeClaim: ClaimSource | None = None
    downwardAPI: DownwardApi | None = None


class SchedulingGate(msgspec.Struct, frozen=True):
    """A scheduling gate, which keeps the Pod from being scheduled."""

    name: str = ""


class PodSpec(msgspec.Struct):
    """The fields of a Pod's spec that determine where it runs and how it stops."""

    ordinary: list[Container] | None = msgspec.field(default=None, name="containers")
    initContainers: list[Container] | None = None
    ephemeralContainers: list[Container] | None = None
    nodeName: str | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    terminationGracePeriodSeconds: int | None = None
    schedulerName: str | None = None
    os: PodOS | None = None
    priorityClassName: str | None = None
    restartPolicy: str | None = None
    resourceClaims: list[dict[str, Any]] | None = None
    resources: Resources | None = None
    overhead: dict[str, ResourceQuantity] | None = None
    schedulingGates: list[SchedulingGate] | None = None
    schedulingGroup: Any = None
    volumes: list[Volume] | None = None
    topologySpreadConstraints: Any = None

    @property
    def containers(self) -> list[Container]:
        """Return the app containers. The API server sends an empty list as null, and rejects it after admission."""
        return self.ordinary or []

    @property
    def all_containers(self) -> list[Container]:
        """Return the app, init, and ephemeral containers."""
        return [*self.containers, *(self.initContainers or ()), *(self.ephemeralContainers or ())]


class ApiObject(msgspec.Struct):
    """An object with metadata."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels, or an empty dict."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations, or an empty dict."""
        return self.metadata.annotations or {}

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages the object, or None."""
        return self.metadata.controller


class Pod(ApiObject):
    """A Pod or a pod template: both have metadata and spec."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)

    @property
    def grace_seconds(self) -> int:
        """Return the effective termination grace period, in seconds."""
        grace = self.spec.terminationGracePeriodSeconds
        return DEFAULT_GRACE_SECONDS if grace is None else grace
