"""Apply the API server's defaults to the other built-in kinds that policies judge, mostly as data.

Not done: what the API server allocates (addresses, node ports), what depends on the cluster (the default StorageClass),
and ``status``.

Source: pkg/apis/*/*/defaults.go of Kubernetes 1.37, and what a kube-apiserver 1.37 sent to a webhook.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from webhook.kube.defaults import VOLUME_DEFAULTS
from webhook.kube.filling import AnyJSON, canonical, fill, fill_empty, fill_if_there, items_of, mapping, mappings_at
from webhook.kube.resources import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

_RBAC: Final = "rbac.authorization.k8s.io"
_TCP: Final = {"protocol": "TCP"}

_DEFAULTS: Final[dict[tuple[str, str], dict[str, dict[str, AnyJSON]]]] = {
    ("", "Endpoints"): {"subsets[*].ports[*]": _TCP},
    ("", "Namespace"): {"": {"spec": {"finalizers": ["kubernetes"]}}},
    ("", "PersistentVolume"): {
        "metadata": {"finalizers": ["kubernetes.io/pv-protection"]},
        "spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    },
    ("", "PersistentVolumeClaim"): {
        "metadata": {"finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"volumeMode": "Filesystem"},
    },
    ("", "Secret"): {"": {"type": "Opaque"}},
    ("", "Service"): {"spec": {"sessionAffinity": "None", "type": "ClusterIP"}, "spec.ports[*]": _TCP},
    ("autoscaling", "HorizontalPodAutoscaler"): {"spec": {"minReplicas": 1}},
    ("discovery.k8s.io", "EndpointSlice"): {"endpoints[*]": {"conditions": {}}, "ports[*]": {"name": "", **_TCP}},
    ("networking.k8s.io", "IngressClass"): {"spec.parameters": {"scope": "Cluster"}},
    ("networking.k8s.io", "NetworkPolicy"): {"spec.egress[*].ports[*]": _TCP, "spec.ingress[*].ports[*]": _TCP},
    (_RBAC, "ClusterRoleBinding"): {"roleRef": {"apiGroup": _RBAC}},
    (_RBAC, "RoleBinding"): {"roleRef": {"apiGroup": _RBAC}},
    ("scheduling.k8s.io", "PriorityClass"): {"": {"preemptionPolicy": "PreemptLowerPriority"}},
    ("storage.k8s.io", "CSIDriver"): {
        "spec": {
            "attachRequired": True,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "podInfoOnMount": False,
            "preventPodSchedulingIfMissing": False,
            "requiresRepublish": False,
            "seLinuxMount": False,
            "storageCapacity": False,
            "volumeLifecycleModes": ["Persistent"],
        }
    },
    ("storage.k8s.io", "StorageClass"): {"": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}},
}
"""Defaults by kind and place: ``spec.ports[*]`` is each mapping in a list, the empty path the object itself."""

_QUANTITIES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "LimitRange"): tuple(
        f"spec.limits[*].{name}" for name in ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")
    ),
    ("", "PersistentVolume"): ("spec.capacity",),
    ("", "PersistentVolumeClaim"): ("spec.resources.limits", "spec.resources.requests"),
    ("", "ResourceQuota"): ("spec.hard",),
    ("node.k8s.io", "RuntimeClass"): ("overhead.podFixed",),
}
"""Paths of quantities by kind."""

_INTERNAL: Final = {"internalTrafficPolicy": "Cluster"}
_EXTERNAL: Final = {"externalTrafficPolicy": "Cluster"}
_SERVICES: Final[dict[str, dict[str, AnyJSON]]] = {
    "ClusterIP": _INTERNAL,
    "LoadBalancer": {"allocateLoadBalancerNodePorts": True, **_EXTERNAL, **_INTERNAL},
    "NodePort": {**_EXTERNAL, **_INTERNAL},
}
_SESSION: Final = {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}

_METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
"""The annotation that holds what v1 has no fields for."""

_CPU: Final = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"averageUtilization": 80, "type": "Utilization"}},
}
_PERCENT: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
_BEHAVIOR: Final = {
    "scaleDown": {"policies": [_PERCENT], "selectPolicy": "Max"},
    "scaleUp": {
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT],
        "selectPolicy": "Max",
        "stabilizationWindowSeconds": 0,
    },
}


def default_object(group: str, kind: str, value: AnyJSON) -> None:
    """Fill in an object of a kind in the tables. Leave objects of other kinds as they are."""
    key = (group, kind)
    for path, defaults in _DEFAULTS.get(key, {}).items():
        for each in mappings_at(value, path):
            fill(each, defaults)
    for path in _QUANTITIES.get(key, ()):
        for each in mappings_at(value, path):
            canonical(each)
    if derive := _DERIVED.get(key):
        derive(value)


def _derive_autoscaler(autoscaler: AnyJSON) -> None:
    spec = mapping(autoscaler, "spec")
    if autoscaler.get("apiVersion") == "autoscaling/v1":
        if _METRICS not in mapping(autoscaler, "metadata", "annotations"):
            fill(spec, {"targetCPUUtilizationPercentage": 80})
        return
    fill_empty(spec, {"metrics": [_CPU]})
    fill_if_there(spec, "behavior", _BEHAVIOR)
    for metric in items_of(spec, "metrics"):
        for source in metric.values():
            canonical(mapping(source, "target"), ("averageValue", "value"))


def _derive_binding(binding: AnyJSON) -> None:
    for subject in items_of(binding, "subjects"):
        if subject.get("kind") in ("Group", "User"):
            fill(subject, {"apiGroup": _RBAC})


def _derive_limits(limit_range: AnyJSON) -> None:
    for item in mappings_at(limit_range, "spec.limits[*]"):
        if item.get("type") == "Container":
            limits = {**mapping(item, "max"), **mapping(item, "default")}
            requests = {**mapping(item, "min"), **limits, **mapping(item, "defaultRequest")}
            item.update({name: each for name, each in (("default", limits), ("defaultRequest", requests)) if each})


def _derive_namespace(namespace: AnyJSON) -> None:
    metadata = mapping(namespace, "metadata")
    if name := metadata.get("name"):
        metadata["labels"] = {**mapping(metadata, "labels"), NAMESPACE_NAME_LABEL: name}


def _derive_network_policy(policy: AnyJSON) -> None:
    spec = mapping(policy, "spec")
    fill_empty(spec, {"policyTypes": ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]})


def _derive_secret(secret: AnyJSON) -> None:
    texts = secret.get("stringData")
    if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
        del secret["stringData"]
        encoded = {key: b64encode(text.encode()).decode() for key, text in texts.items()}
        if encoded:
            secret["data"] = {**mapping(secret, "data"), **encoded}


def _derive_service(service: AnyJSON) -> None:
    spec = mapping(service, "spec")
    fill(spec, _SERVICES.get(str(spec.get("type")), {}))
    if spec.get("externalIPs") and spec.get("type") == "ClusterIP":
        fill(spec, _EXTERNAL)
    if spec.get("sessionAffinity") == "ClientIP":
        fill(spec, _SESSION)
    for port in items_of(spec, "ports"):
        fill_empty(port, {"targetPort": port.get("port")})


def _derive_volume(volume: AnyJSON) -> None:
    for source, defaults in VOLUME_DEFAULTS.items():
        fill_if_there(mapping(volume, "spec"), source, defaults)


_DERIVED: Final[dict[tuple[str, str], Callable[[AnyJSON], None]]] = {
    ("", "LimitRange"): _derive_limits,
    ("", "Namespace"): _derive_namespace,
    ("", "PersistentVolume"): _derive_volume,
    ("", "Secret"): _derive_secret,
    ("", "Service"): _derive_service,
    ("autoscaling", "HorizontalPodAutoscaler"): _derive_autoscaler,
    ("networking.k8s.io", "NetworkPolicy"): _derive_network_policy,
    (_RBAC, "ClusterRoleBinding"): _derive_binding,
    (_RBAC, "RoleBinding"): _derive_binding,
}
"""Functions that fill in what depends on other fields, by kind."""
