"""Read the objects that a Pod names, as far as they decide where it can run: claims, bound volumes, its RuntimeClass.

Sources: https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling; https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/;
https://kubernetes.io/docs/concepts/storage/persistent-volumes/#node-affinity
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.kube.affinity import Term
from webhook.kube.pod import NodeSelector, Requirement, ResourceQuantity, Toleration  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.kube.pod import Pod, PodSpec

KINDS: Final = {
    "PersistentVolume": ("", ("v1",), "persistentvolumes"),
    "PersistentVolumeClaim": ("", ("v1",), "persistentvolumeclaims"),
    "ResourceClaim": ("resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "resourceclaims"),
    "ResourceClaimTemplate": ("resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "resourceclaimtemplates"),
    "RuntimeClass": ("node.k8s.io", ("v1",), "runtimeclasses"),
}
"""The API group, the versions, and the resource of each kind."""
CLUSTER_SCOPED: Final = frozenset({"PersistentVolume", "RuntimeClass"})

_ZONE: Final = "topology.kubernetes.io/zone"


class Reference(msgspec.Struct, frozen=True):
    """The part of an object that decides where the Pods that name it can run.

    Attributes:
        volume: the PersistentVolume that a PersistentVolumeClaim is bound to, or empty.
        terms: the node affinity of a PersistentVolume.
        classes: the device classes that a ResourceClaim, or a template of it, requests.
        selector: the nodeSelector that a RuntimeClass adds to a Pod.
        tolerations: the tolerations that a RuntimeClass adds to a Pod.
        overhead: the resources that a RuntimeClass adds to those of a Pod's containers.
    """

    volume: str = ""
    terms: tuple[Term, ...] = ()
    classes: frozenset[str] = frozenset()
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    overhead: tuple[tuple[str, ResourceQuantity], ...] = ()


def key_of(kind: str, namespace: str, name: str) -> str:
    """Return the key of a reference in a view of the cluster."""
    return f"{kind}/{namespace}/{name}"


def reference_from(value: Mapping[str, Any]) -> Reference:
    """Return the reference in an object of one of the `KINDS`. Skip parts that can't be read."""
    try:
        named = msgspec.convert(value, _Object)
    except msgspec.ValidationError:
        return Reference()
    spec, added = named.spec, named.scheduling
    required = spec.nodeAffinity.required if spec.nodeAffinity is not None else None
    terms = (term.matchExpressions or () for term in required.nodeSelectorTerms) if required is not None else ()
    claimed = spec.devices if spec.spec is None else spec.spec.devices
    return Reference(
        volume=spec.volumeName,
        terms=tuple(Term(tuple(map(_by_zone, term))) for term in terms),
        classes=claimed.classes,
        selector=tuple(added.nodeSelector.items()),
        tolerations=added.tolerations,
        overhead=tuple(named.overhead.podFixed.items()),
    )


def _by_zone(need: Requirement) -> Requirement:
    """Return a requirement on the zone label in place of one on a CSI driver's: ``topology.ebs.csi.aws.com/zone``."""
    return msgspec.structs.replace(need, key=_ZONE) if need.key.endswith("/zone") else need


def claimed_classes(spec: PodSpec, namespace: str, references: Mapping[str, Reference]) -> frozenset[str] | None:
    """Return the device classes that the claims of a Pod request. Return None if one of the claims is unknown."""
    classes = frozenset[str]()
    for claim in spec.resourceClaims or ():
        name, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        kind = "ResourceClaim" if name else "ResourceClaimTemplate"
        reference = references.get(key_of(kind, namespace, str(name or template)))
        if reference is None:
            return None
        classes |= reference.classes
    return classes


def bound_volumes(
    spec: PodSpec, namespace: str, references: Mapping[str, Reference]
) -> Iterator[tuple[str, tuple[Term, ...]]]:
    """Yield the name and the node affinity of each known PersistentVolume that a Pod mounts."""
    if not references:
        return
    for volume in spec.volumes or ():
        if (source := volume.persistentVolumeClaim) is not None:
            claim = references.get(key_of("PersistentVolumeClaim", namespace, source.claimName))
            bound = references.get(key_of("PersistentVolume", "", claim.volume)) if claim is not None else None
            if claim is not None and bound is not None and bound.terms:
                yield claim.volume, bound.terms


def with_runtime_class(pod: Pod, references: Mapping[str, Reference]) -> Pod:
    """Add the constraints and the overhead of its RuntimeClass to a Pod, as the API server does, and return it."""
    runtime = references.get(key_of("RuntimeClass", "", pod.spec.runtimeClassName or ""))
    if runtime is not None:
        own, pod.spec.overhead = pod.spec.tolerations or [], dict(runtime.overhead)
        pod.spec.nodeSelector = {**dict(runtime.selector), **(pod.spec.nodeSelector or {})}
        pod.spec.tolerations = [*own, *(added for added in runtime.tolerations if added not in own)]
    return pod


class _DeviceRequest(msgspec.Struct):
    deviceClassName: str = ""
    exactly: _DeviceRequest | None = None
    firstAvailable: tuple[_DeviceRequest, ...] = ()

    @property
    def names(self) -> Iterator[str]:
        yield from filter(None, (self.deviceClassName,))
        for request in (*((self.exactly,) if self.exactly is not None else ()), *self.firstAvailable):
            yield from request.names


class _Devices(msgspec.Struct):
    requests: tuple[_DeviceRequest, ...] = ()

    @property
    def classes(self) -> frozenset[str]:
        return frozenset(chain.from_iterable(request.names for request in self.requests))


class _Affinity(msgspec.Struct):
    required: NodeSelector | None = None


class _Template(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Spec(msgspec.Struct):
    volumeName: str = ""
    nodeAffinity: _Affinity | None = None
    devices: _Devices = msgspec.field(default_factory=_Devices)
    spec: _Template | None = None


class _Scheduling(msgspec.Struct):
    nodeSelector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class _Overhead(msgspec.Struct):
    podFixed: dict[str, ResourceQuantity] = msgspec.field(default_factory=dict)


class _Object(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    scheduling: _Scheduling = msgspec.field(default_factory=_Scheduling)
    overhead: _Overhead = msgspec.field(default_factory=_Overhead)
