"""Apply the API server's defaults to the other built-in kinds that policies evaluate.

Values that the API server allocates (addresses, node ports), values that depend on the cluster (the default
StorageClass), and ``status`` stay unset.

Source: pkg/apis/*/*/defaults.go of Kubernetes 1.37, and the reviews that a kube-apiserver 1.37 sent to a webhook.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from webhook.kube.filling import TABLES, AnyJSON, canonical, fill, fill_at, fill_empty, items_of, mapping, mappings_at
from webhook.kube.resources import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

_RBAC: Final = "rbac.authorization.k8s.io"

_METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
"""The annotation with the metrics that autoscaling/v1 has no fields for."""


def default_object(group: str, kind: str, value: AnyJSON) -> None:
    """Fill in an object of a kind in the tables. Leave objects of other kinds unchanged."""
    key = f"{group}/{kind}"
    fill_at(value, TABLES.objects.get(key, {}))
    for path in TABLES.quantities.get(key, ()):
        for quantities in mappings_at(value, path):
            canonical(quantities)
    if derive := _DERIVED.get((group, kind)):
        derive(value)


def _derive_autoscaler(autoscaler: AnyJSON) -> None:
    spec = mapping(autoscaler, "spec")
    if autoscaler.get("apiVersion") == "autoscaling/v1":
        if _METRICS not in mapping(autoscaler, "metadata", "annotations"):
            fill(spec, {"targetCPUUtilizationPercentage": 80})
        return
    fill_empty(spec, {"metrics": [TABLES.cpu_metric]})
    fill_at(spec, {"behavior": TABLES.scaling_behavior})
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
            item.update({name: value for name, value in (("default", limits), ("defaultRequest", requests)) if value})


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
    fill(spec, TABLES.services.get(str(spec.get("type")), {}))
    if spec.get("externalIPs") and spec.get("type") == "ClusterIP":
        fill(spec, {"externalTrafficPolicy": "Cluster"})
    if spec.get("sessionAffinity") == "ClientIP":
        fill(spec, TABLES.client_ip_session)
    for port in items_of(spec, "ports"):
        fill_empty(port, {"targetPort": port.get("port")})


def _derive_volume(volume: AnyJSON) -> None:
    fill_at(mapping(volume, "spec"), TABLES.volume_sources)


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
"""The functions that derive fields from other fields, by group and kind."""
