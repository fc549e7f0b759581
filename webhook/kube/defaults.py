"""What the API server has done to a built-in object before a webhook sees it, done to a manifest.

Decoding drops nulls, defaults are filled in, the DefaultTolerationSeconds plugin adds its two tolerations. Every
function changes plain JSON in place, and passes over what has the wrong type. Not done: members that are empty or zero
stay, though the API server leaves most of them out; a Pod's own ``spec.resources`` are not derived from its
containers'. None of this is for custom resources: their defaults are in their CRDs.

Source: pkg/apis/{core,apps,batch}/v1/defaults.go and plugin/pkg/admission/defaulttolerationseconds of Kubernetes 1.36,
and what a kube-apiserver 1.36 sent to a webhook.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from webhook.kube.quantity import canonical_quantity

JSON: TypeAlias = Any
"""A value of a manifest that nobody has judged yet."""

TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Members that map names to texts, in which an empty one counts."""

_QUANTITIES: Final = frozenset({"limits", "requests", "overhead"})
_MAPS: Final = TEXTS | _QUANTITIES

_POD_SPEC: Final = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER: Final = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_HTTP_GET: Final = {"path": "/", "scheme": "HTTP"}
_MODE: Final = {"defaultMode": 0o644}
_VOLUMES: Final[dict[str, dict[str, JSON]]] = {
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared", "readOnly": False},
    "configMap": _MODE,
    "downwardAPI": _MODE,
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "projected": _MODE,
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
    "secret": _MODE,
}
_WORKLOADS: Final[dict[tuple[str, str], dict[str, JSON]]] = {
    ("", "ReplicationController"): {"replicas": 1},
    ("apps", "DaemonSet"): {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"}},
    ("apps", "Deployment"): {
        "progressDeadlineSeconds": 600,
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "strategy": {"type": "RollingUpdate"},
    },
    ("apps", "ReplicaSet"): {"replicas": 1},
    ("apps", "StatefulSet"): {
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "serviceName": "",
        "updateStrategy": {"type": "RollingUpdate"},
    },
    ("batch", "CronJob"): {
        "concurrencyPolicy": "Allow",
        "failedJobsHistoryLimit": 1,
        "successfulJobsHistoryLimit": 3,
        "suspend": False,
    },
    ("batch", "Job"): {"completionMode": "NonIndexed", "manualSelector": False, "parallelism": 1, "suspend": False},
}
_ROLLING_UPDATE: Final[dict[str, dict[str, JSON]]] = {
    "DaemonSet": {"maxSurge": 0, "maxUnavailable": 1},
    "Deployment": {"maxSurge": "25%", "maxUnavailable": "25%"},
    "StatefulSet": {"partition": 0},
}
_CLAIM: Final = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
_NO_EXECUTE: Final = "NoExecute"


def drop_nulls(value: JSON) -> None:
    """Drop members that are null; in maps of strings they become the empty string, in maps of quantities zero."""
    if isinstance(value, list):
        for item in value:
            drop_nulls(item)
    if not isinstance(value, dict):
        return
    for key in [key for key, member in value.items() if member is None]:
        del value[key]
    for key, member in value.items():
        if isinstance(member, dict) and key in _MAPS:
            nothing = "" if key in TEXTS else "0"
            value[key] = {name: nothing if each is None else each for name, each in member.items()}
        else:
            drop_nulls(member)


def default_pod(pod: JSON) -> None:
    """Fill in a Pod."""
    spec = _mapping(pod, "spec")
    if not spec:
        return
    _default_pod_spec(spec)
    _fill(spec, {"enableServiceLinks": True})
    grace = spec["terminationGracePeriodSeconds"]
    if isinstance(grace, int) and grace < 0:  # in a Pod, not in a template
        spec["terminationGracePeriodSeconds"] = 1
    for container in (*_items(spec, "containers"), *_items(spec, "initContainers")):
        if limits := _mapping(container, "resources", "limits"):
            _fill(container["resources"], {"requests": limits})
        if spec.get("hostNetwork") is True:
            for port in _items(container, "ports"):
                _fill_empty(port, {"hostPort": port.get("containerPort")})


def default_tolerations(pod: JSON) -> None:
    """Let a Pod stay five minutes on a Node that is not ready or not reachable, where it does not speak of that."""
    spec = _mapping(pod, "spec")
    if not spec or not isinstance(spec.get("tolerations"), list | None):
        return
    tolerations = _items(spec, "tolerations")
    keys = {str(each.get("key") or "") for each in tolerations if (each.get("effect") or _NO_EXECUTE) == _NO_EXECUTE}
    added = [
        {"key": key, "operator": "Exists", "effect": _NO_EXECUTE, "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if keys.isdisjoint((key, ""))
    ]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


LABELLED_BY_TEMPLATE: Final = frozenset({"Job", "ReplicationController"})
"""Kinds whose objects get the labels of their pod template where they have none."""


def default_workload(group: str, kind: str, workload: JSON) -> None:
    """Fill in a built-in object that holds a pod template; an object of any other kind stays as it is."""
    if (group, kind) == ("", "PodTemplate"):
        _default_template(_mapping(workload, "template"))
    spec = _mapping(workload, "spec")
    defaults = _WORKLOADS.get((group, kind))
    if not spec or defaults is None:
        return
    _fill_if_there(spec, "jobTemplate", {"metadata": {}})
    holder = _mapping(spec, "jobTemplate", "spec") if kind == "CronJob" else spec
    template = _mapping(holder, "template")
    _default_template(template)
    _default_failure_policy(_mapping(holder, "podFailurePolicy"))
    if kind == "Job":
        _default_job(spec)
    for claim in _items(spec, "volumeClaimTemplates"):
        _fill(claim, _CLAIM)
        _default_claim(claim)
    _fill(spec, defaults)
    strategy = _mapping(spec, "strategy") or _mapping(spec, "updateStrategy")
    if kind in _ROLLING_UPDATE and strategy.get("type") == "RollingUpdate":
        _fill(strategy, {"rollingUpdate": _ROLLING_UPDATE[kind]})
    if labels := _mapping(template, "metadata", "labels"):
        if kind in LABELLED_BY_TEMPLATE:
            _fill_empty(_mapping(workload, "metadata"), {"labels": dict(labels)})
        if kind == "ReplicationController":
            _fill_empty(spec, {"selector": dict(labels)})


def _default_failure_policy(policy: JSON) -> None:
    for rule in _items(policy, "rules"):
        for condition in _items(rule, "onPodConditions"):
            _fill(condition, {"status": "True"})


def _default_job(spec: JSON) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index, policy = spec.get("backoffLimitPerIndex"), spec.get("podFailurePolicy")
    _fill(
        spec,
        {
            "backoffLimit": 6 if per_index is None else 2**31 - 1,
            "podReplacementPolicy": "TerminatingOrFailed" if policy is None else "Failed",
        },
    )


def _default_template(template: JSON) -> None:
    if template:
        _fill(template, {"metadata": {}})
    _default_pod_spec(_mapping(template, "spec"))


def _default_pod_spec(spec: JSON) -> None:
    if not spec:
        return
    _fill(spec, _POD_SPEC)
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):  # two names of one field
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    _canonical(_mapping(spec, "overhead"))
    _default_resources(_mapping(spec, "resources"))
    for volume in _items(spec, "volumes"):
        _default_volume(volume)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in _items(spec, field):
            _default_container(container)


def _default_container(container: JSON) -> None:
    _fill(container, {**_CONTAINER, "imagePullPolicy": _pull_policy(container.get("image"))})
    _default_resources(_mapping(container, "resources"))
    for port in _items(container, "ports"):
        _fill(port, {"protocol": "TCP"})
    for variable in _items(container, "env"):
        _default_value_source(_mapping(variable, "valueFrom"))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = _mapping(container, name)
        if probe:
            _fill_empty(probe, _PROBE)
        _fill_if_there(probe, "httpGet", _HTTP_GET)
        _fill_if_there(probe, "grpc", {"service": ""})
    for hook in ("postStart", "preStop"):
        _fill_if_there(_mapping(container, "lifecycle", hook), "httpGet", _HTTP_GET)


def _default_volume(volume: JSON) -> None:
    if all(source is None for name, source in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    for source, defaults in _VOLUMES.items():
        _fill_if_there(volume, source, defaults)
    if image := _mapping(volume, "image"):
        _fill(image, {"pullPolicy": _pull_policy(image.get("reference"))})
    _default_claim(_mapping(volume, "ephemeral", "volumeClaimTemplate"))
    _canonical(_mapping(volume, "emptyDir"), ("sizeLimit",))
    sources = _items(_mapping(volume, "projected"), "sources")
    for source in sources:
        _fill_if_there(source, "serviceAccountToken", {"expirationSeconds": 3600})
    for holder in (volume, *sources):
        for item in _items(_mapping(holder, "downwardAPI"), "items"):
            _default_value_source(item)


def _default_claim(claim: JSON) -> None:
    _fill(claim, {"metadata": {}})
    _fill_if_there(claim, "spec", {"volumeMode": "Filesystem"})
    _default_resources(_mapping(claim, "spec", "resources"))


def _default_value_source(source: JSON) -> None:
    _fill_if_there(source, "fieldRef", {"apiVersion": "v1"})
    _fill_if_there(source, "resourceFieldRef", {"divisor": "0"})
    _fill_if_there(source, "fileKeyRef", {"optional": False})
    _canonical(_mapping(source, "resourceFieldRef"), ("divisor",))


def _default_resources(resources: JSON) -> None:
    _canonical(_mapping(resources, "limits"))
    _canonical(_mapping(resources, "requests"))


def _canonical(quantities: JSON, names: tuple[str, ...] | None = None) -> None:
    for name in quantities.keys() if names is None else quantities.keys() & names:
        quantities[name] = canonical_quantity(quantities[name])


def _pull_policy(image: JSON) -> str:
    name, _, digest = str(image or "").partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _fill(target: JSON, defaults: dict[str, JSON]) -> None:
    """Set what is not there, or an empty string."""
    for key, default in defaults.items():
        there = target.get(key)
        if there is None or there == "":
            target[key] = {} if isinstance(default, dict) else default
        if isinstance(default, dict) and isinstance(target[key], dict):
            _fill(target[key], default)


def _fill_empty(target: JSON, defaults: dict[str, JSON]) -> None:
    """Set what is not there, or is zero or empty."""
    target.update({key: default for key, default in defaults.items() if not target.get(key)})


def _fill_if_there(parent: JSON, field: str, defaults: dict[str, JSON]) -> None:
    if isinstance(target := parent.get(field), dict):
        _fill(target, defaults)


def _mapping(value: JSON, *path: str) -> JSON:
    """The mapping at the path; another, empty one where there is none."""
    for field in path:
        value = value.get(field) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _items(parent: JSON, field: str) -> list[JSON]:
    """The mappings in a list; nothing where there is no list."""
    items = parent.get(field)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
