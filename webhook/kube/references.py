"""Read the objects that a Pod names, as far as they decide where it can run: claims, bound volumes, its RuntimeClass.

Sources: https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling; https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/;
https://kubernetes.io/docs/concepts/storage/persistent-volumes/#node-affinity
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.kube.affinity import Term
from webhook.kube.filling import items_of, mapping, mappings_at
from webhook.kube.pod import ResourceQuantity, Toleration  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.kube.pod import PodSpec, Requirement

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
    """Return the reference in an object of one of the `KINDS`. Skip an object with parts that can't be read."""
    spec, scheduling = mapping(value, "spec"), mapping(value, "scheduling")
    requests = (*mappings_at(spec, "devices.requests[*]"), *mappings_at(spec, "spec.devices.requests[*]"))
    choices = [choice for request in requests for choice in (request, *mappings_at(request, "firstAvailable[*]"))]
    terms = mappings_at(spec, "nodeAffinity.required.nodeSelectorTerms[*]")
    try:
        return msgspec.convert(
            {
                "volume": spec.get("volumeName", ""),
                "terms": [{"requirements": items_of(term, "matchExpressions")} for term in terms],
                "classes": [
                    name
                    for choice in choices
                    if (name := mapping(choice, "exactly").get("deviceClassName") or choice.get("deviceClassName"))
                ],
                "selector": list(mapping(scheduling, "nodeSelector").items()),
                "tolerations": items_of(scheduling, "tolerations"),
                "overhead": list(mapping(value, "overhead", "podFixed").items()),
            },
            Reference,
        )
    except msgspec.ValidationError:
        return Reference()


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
    for volume in spec.volumes or ():
        if (source := volume.persistentVolumeClaim) is not None:
            claim = references.get(key_of("PersistentVolumeClaim", namespace, source.claimName))
            bound = references.get(key_of("PersistentVolume", "", claim.volume)) if claim is not None else None
            if claim is not None and bound is not None and bound.terms:
                yield claim.volume, tuple(Term(tuple(map(_by_zone, term.requirements))) for term in bound.terms)


def _by_zone(need: Requirement) -> Requirement:
    """Return a requirement on the zone label in place of one on a CSI driver's: ``topology.ebs.csi.aws.com/zone``."""
    return msgspec.structs.replace(need, key=_ZONE) if need.key.endswith("/zone") else need


def with_runtime_class(pod: dict[str, Any], references: Mapping[str, Reference]) -> dict[str, Any]:
    """Return a Pod with the constraints and the overhead of its RuntimeClass, which the API server merges into it."""
    spec = mapping(pod, "spec")
    runtime = references.get(key_of("RuntimeClass", "", str(spec.get("runtimeClassName"))))
    readable = isinstance(spec.get("nodeSelector"), dict | None) and isinstance(spec.get("tolerations"), list | None)
    if runtime is None or not readable:
        return pod
    own, added = items_of(spec, "tolerations"), msgspec.to_builtins(runtime.tolerations)
    merged = {
        "nodeSelector": {**dict(runtime.selector), **mapping(spec, "nodeSelector")},
        "tolerations": [*own, *(toleration for toleration in added if toleration not in own)],
        "overhead": dict(runtime.overhead),
    }
    return {**pod, "spec": {**spec, **{field: value for field, value in merged.items() if value}}}
