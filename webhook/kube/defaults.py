"""Change manifests as the API server changes built-in objects before it calls webhooks.

The API server drops nulls and fills in defaults. Admission plugins that every cluster enables add a ServiceAccount, a
priority, and two tolerations to each Pod. The functions change plain JSON in place, and skip values of the wrong type.
They don't omit empty and zero members, derive ``spec.resources`` of a Pod from its containers, add a volume for the
ServiceAccount token, allocate values (addresses, node ports), or read the cluster (the default StorageClass). Custom
resources stay unchanged, because their defaults are in their CRDs.

Source: pkg/apis/*/*/defaults.go and plugin/pkg/admission/{defaulttolerationseconds,priority,serviceaccount} of
Kubernetes 1.37, and the reviews that a kube-apiserver 1.37 sent to a webhook.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from webhook.kube.filling import AnyJSON, Defaults, fill, fill_empty, fill_in, items_of, mapping, mappings_at
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.kube.tolerations import NO_EXECUTE

if TYPE_CHECKING:
    from collections.abc import Callable

_Members: TypeAlias = dict[str, Any]
_AtPaths: TypeAlias = dict[str, _Members]


class _Tables(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's defaults as data: ``defaults.json``. Kinds are keyed by ``group/kind``, and fields by path.

    Attributes:
        created_pod: fields that an admission plugin sets; it sets ``priority`` only without a PriorityClass.
        probe: defaults that also replace zero.
        volume_sources: defaults by volume source.
        templates: the path of the pod template, by kind.
        variants: by kind, a path, a field, its value, and the defaults of mappings with that value.
        quantities: paths of quantities, by kind.
    """

    pod_spec: _Members
    created_pod: _Members
    priority: _Members
    container: _AtPaths
    probe: _Members
    volume_sources: _AtPaths
    volume_parts: _AtPaths
    templates: dict[str, str]
    objects: dict[str, _AtPaths]
    variants: dict[str, tuple[tuple[str, str, str, _Members], ...]]
    quantities: dict[str, tuple[str, ...]]
    cpu_metric: _Members
    scaling_behavior: _Members


_TABLES: Final = msgspec.json.decode(Path(__file__).with_name("defaults.json").read_bytes(), type=_Tables)

_POD_SPEC: Final = Defaults.of({"": _TABLES.pod_spec}, _TABLES.quantities["podSpec"])
_CONTAINER: Final = Defaults.of(_TABLES.container, _TABLES.quantities["container"])
_VOLUME: Final = Defaults.of(_TABLES.volume_sources | _TABLES.volume_parts, _TABLES.quantities["volume"])
_VOLUME_SOURCES: Final = Defaults.of(_TABLES.volume_sources)
_OBJECTS: Final = {
    kind: Defaults.of(_TABLES.objects.get(kind, {}), _TABLES.quantities.get(kind, ()))
    for kind in _TABLES.objects | _TABLES.quantities
}
_SCALING: Final = Defaults.of({"behavior": _TABLES.scaling_behavior})

TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""The maps of strings, where an empty string is a valid value."""

_QUANTITIES: Final = frozenset({"limits", "requests", "overhead"})
_MAPS: Final = TEXTS | _QUANTITIES

_METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
"""The annotation with the metrics that autoscaling/v1 has no fields for."""


def drop_nulls(value: AnyJSON) -> None:
    """Drop null members. In a map of strings, null becomes an empty string; in a map of quantities, it becomes zero."""
    if isinstance(value, list):
        for item in value:
            drop_nulls(item)
    if not isinstance(value, dict):
        return
    for key in [key for key, member in value.items() if member is None]:
        del value[key]
    for key, member in value.items():
        if isinstance(member, dict) and key in _MAPS:
            empty = "" if key in TEXTS else "0"
            value[key] = {name: empty if text is None else text for name, text in member.items()}
        else:
            drop_nulls(member)


def default_pod(pod: AnyJSON) -> None:
    """Fill in a Pod's defaults."""
    spec = mapping(pod, "spec")
    if not spec:
        return
    _default_pod_spec(spec)
    fill(spec, {"enableServiceLinks": True})
    grace = spec["terminationGracePeriodSeconds"]
    if isinstance(grace, int) and grace < 0:  # in Pods only, not in templates
        spec["terminationGracePeriodSeconds"] = 1
    for container in (*items_of(spec, "containers"), *items_of(spec, "initContainers")):
        if limits := mapping(container, "resources", "limits"):
            fill(container["resources"], {"requests": limits})
        if spec.get("hostNetwork") is True:
            for port in items_of(container, "ports"):
                fill_empty(port, {"hostPort": port.get("containerPort")})


def complete_pod(pod: AnyJSON) -> None:
    """Fill in the fields that the API server sets when it creates a Pod: the defaults, and those from the plugins.

    The priority of a PriorityClass isn't known, nor is the cluster's default PriorityClass.
    """
    default_pod(pod)
    default_tolerations(pod)
    if spec := mapping(pod, "spec"):
        fill(spec, _TABLES.created_pod)
        if not spec.get("priorityClassName"):
            fill(spec, _TABLES.priority)


def default_tolerations(pod: AnyJSON) -> None:
    """Add five-minute tolerations for nodes that are not ready or unreachable, unless the Pod already has them."""
    spec = mapping(pod, "spec")
    if not spec or not isinstance(spec.get("tolerations"), list | None):
        return
    own = items_of(spec, "tolerations")
    keys = {str(one.get("key") or "") for one in own if (one.get("effect") or NO_EXECUTE) == NO_EXECUTE}
    added = [
        {"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if keys.isdisjoint((key, ""))
    ]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def default_object(group: str, kind: str, value: AnyJSON) -> None:
    """Fill in a built-in object other than a Pod. Leave objects of other kinds unchanged."""
    key = f"{group}/{kind}"
    if path := _TABLES.templates.get(key):
        for template in filter(None, mappings_at(value, path)):
            fill(template, {"metadata": {}})
            _default_pod_spec(mapping(template, "spec"))
    if defaults := _OBJECTS.get(key):
        fill_in(value, defaults)
    if derive := _DERIVED.get(key):
        derive(value)
    for path, field, wanted, members in _TABLES.variants.get(key, ()):
        for target in mappings_at(value, path):
            if target.get(field) == wanted:
                fill(target, members)


def _default_pod_spec(spec: AnyJSON) -> None:
    if not spec:
        return
    fill_in(spec, _POD_SPEC)
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):  # two names for one field
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in items_of(spec, "volumes"):
        _default_volume(volume)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in items_of(spec, field):
            _default_container(container)


def _default_container(container: AnyJSON) -> None:
    fill_in(container, _CONTAINER)
    fill(container, {"imagePullPolicy": _pull_policy(container.get("image"))})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := mapping(container, name):
            fill_empty(probe, _TABLES.probe)


def _default_volume(volume: AnyJSON) -> None:
    if all(source is None for name, source in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    fill_in(volume, _VOLUME)
    if image := mapping(volume, "image"):
        fill(image, {"pullPolicy": _pull_policy(image.get("reference"))})


def _pull_policy(image: AnyJSON) -> str:
    name, _, digest = str(image or "").partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _derive_autoscaler(autoscaler: AnyJSON) -> None:
    spec = mapping(autoscaler, "spec")
    if autoscaler.get("apiVersion") != "autoscaling/v1":
        fill_empty(spec, {"metrics": [_TABLES.cpu_metric]})
        fill_in(spec, _SCALING)
    elif _METRICS not in mapping(autoscaler, "metadata", "annotations"):
        fill(spec, {"targetCPUUtilizationPercentage": 80})


def _derive_job(job: AnyJSON) -> None:
    spec = mapping(job, "spec")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index, policy = spec.get("backoffLimitPerIndex"), spec.get("podFailurePolicy")
    replacement = "TerminatingOrFailed" if policy is None else "Failed"
    limit = 6 if per_index is None else 2**31 - 1
    fill(spec, {"backoffLimit": limit, "parallelism": 1, "podReplacementPolicy": replacement})
    _derive_labels(job)


def _derive_labels(workload: AnyJSON) -> None:
    if labels := mapping(workload, "spec", "template", "metadata", "labels"):
        fill_empty(mapping(workload, "metadata"), {"labels": dict(labels)})


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


def _derive_replication_controller(controller: AnyJSON) -> None:
    _derive_labels(controller)
    if labels := mapping(controller, "spec", "template", "metadata", "labels"):
        fill_empty(controller["spec"], {"selector": dict(labels)})


def _derive_secret(secret: AnyJSON) -> None:
    texts = secret.get("stringData")
    if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
        del secret["stringData"]
        encoded = {key: b64encode(text.encode()).decode() for key, text in texts.items()}
        if encoded:
            secret["data"] = {**mapping(secret, "data"), **encoded}


def _derive_service(service: AnyJSON) -> None:
    spec = mapping(service, "spec")
    if spec.get("externalIPs") and spec.get("type") == "ClusterIP":
        fill(spec, {"externalTrafficPolicy": "Cluster"})
    for port in items_of(spec, "ports"):
        fill_empty(port, {"targetPort": port.get("port")})


def _derive_volume(volume: AnyJSON) -> None:
    fill_in(mapping(volume, "spec"), _VOLUME_SOURCES)


LABELLED_BY_TEMPLATE: Final = frozenset({"Job", "ReplicationController"})
"""The kinds whose objects default to the labels of their pod template."""

_DERIVED: Final[dict[str, Callable[[AnyJSON], None]]] = {
    "/LimitRange": _derive_limits,
    "/Namespace": _derive_namespace,
    "/PersistentVolume": _derive_volume,
    "/ReplicationController": _derive_replication_controller,
    "/Secret": _derive_secret,
    "/Service": _derive_service,
    "autoscaling/HorizontalPodAutoscaler": _derive_autoscaler,
    "batch/Job": _derive_job,
    "networking.k8s.io/NetworkPolicy": _derive_network_policy,
}
"""The functions that derive fields from other fields, by kind."""
