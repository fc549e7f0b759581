"""Apply to a manifest what the API server does to a built-in object before webhooks see it.

Decoding drops nulls, defaults are filled in, and the plugins that every cluster has give a Pod its ServiceAccount, its
priority and two tolerations. Every function changes plain JSON in place, and skips what has the wrong type. Not done:
members that are empty or zero stay, though the API server leaves most of them out; a Pod's own ``spec.resources`` are
not derived from its containers', and the volume of its token is missing. Custom resources are left alone: their
defaults are in their CRDs. `webhook.kube.defaults_objects` has the kinds without Pods.

Source: pkg/apis/{core,apps,batch}/v1/defaults.go and plugin/pkg/admission/{defaulttolerationseconds,priority,
serviceaccount} of Kubernetes 1.37, and what a kube-apiserver 1.37 sent to a webhook.
"""

from __future__ import annotations

from typing import Final

from webhook.kube.filling import AnyJSON, canonical, fill, fill_empty, fill_if_there, items_of, mapping, mappings_at

TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Members that map names to strings, in which an empty string is a value."""

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
VOLUME_DEFAULTS: Final[dict[str, dict[str, AnyJSON]]] = {
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
"""Defaults of a volume by its source."""

_WORKLOADS: Final[dict[tuple[str, str], dict[str, AnyJSON]]] = {
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
_ROLLING_UPDATE: Final[dict[str, dict[str, AnyJSON]]] = {
    "DaemonSet": {"maxSurge": 0, "maxUnavailable": 1},
    "Deployment": {"maxSurge": "25%", "maxUnavailable": "25%"},
    "StatefulSet": {"maxUnavailable": 1, "partition": 0},
}
_CLAIM: Final = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
_NO_EXECUTE: Final = "NoExecute"
_SERVICE_ACCOUNT: Final = {"serviceAccount": "default", "serviceAccountName": "default"}
_PRIORITY: Final = {"preemptionPolicy": "PreemptLowerPriority", "priority": 0}


def drop_nulls(value: AnyJSON) -> None:
    """Drop null members. In maps of strings null becomes the empty string, in maps of quantities zero."""
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


def default_pod(pod: AnyJSON) -> None:
    """Fill in a Pod's defaults."""
    spec = mapping(pod, "spec")
    if not spec:
        return
    _default_pod_spec(spec)
    fill(spec, {"enableServiceLinks": True})
    grace = spec["terminationGracePeriodSeconds"]
    if isinstance(grace, int) and grace < 0:  # in a Pod, not in a template
        spec["terminationGracePeriodSeconds"] = 1
    for container in (*items_of(spec, "containers"), *items_of(spec, "initContainers")):
        if limits := mapping(container, "resources", "limits"):
            fill(container["resources"], {"requests": limits})
        if spec.get("hostNetwork") is True:
            for port in items_of(container, "ports"):
                fill_empty(port, {"hostPort": port.get("containerPort")})


def complete_pod(pod: AnyJSON) -> None:
    """Fill in what a Pod gets when it is created: its defaults, and what the plugins add.

    The priority of a PriorityClass is unknown here, and so is whether the cluster has a default one.
    """
    default_pod(pod)
    default_tolerations(pod)
    if spec := mapping(pod, "spec"):
        fill(spec, _SERVICE_ACCOUNT)
        if not spec.get("priorityClassName"):
            fill(spec, _PRIORITY)


def default_tolerations(pod: AnyJSON) -> None:
    """Add tolerations of five minutes for Nodes that are not ready or not reachable, unless the Pod has its own."""
    spec = mapping(pod, "spec")
    if not spec or not isinstance(spec.get("tolerations"), list | None):
        return
    tolerations = items_of(spec, "tolerations")
    keys = {
        str(toleration.get("key") or "")
        for toleration in tolerations
        if (toleration.get("effect") or _NO_EXECUTE) == _NO_EXECUTE
    }
    added = [
        {"key": key, "operator": "Exists", "effect": _NO_EXECUTE, "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if keys.isdisjoint((key, ""))
    ]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


LABELLED_BY_TEMPLATE: Final = frozenset({"Job", "ReplicationController"})
"""Kinds whose objects get the labels of their pod template where they have none."""


def default_workload(group: str, kind: str, workload: AnyJSON) -> None:
    """Fill in a built-in object that holds a pod template. Leave objects of other kinds as they are."""
    if (group, kind) == ("", "PodTemplate"):
        _default_template(mapping(workload, "template"))
    spec = mapping(workload, "spec")
    defaults = _WORKLOADS.get((group, kind))
    if not spec or defaults is None:
        return
    fill_if_there(spec, "jobTemplate", {"metadata": {}})
    holder = mapping(spec, "jobTemplate", "spec") if kind == "CronJob" else spec
    template = mapping(holder, "template")
    _default_template(template)
    for condition in mappings_at(holder, "podFailurePolicy.rules[*].onPodConditions[*]"):
        fill(condition, {"status": "True"})
    if kind == "Job":
        _default_job(spec)
    for claim in items_of(spec, "volumeClaimTemplates"):
        fill(claim, _CLAIM)
        _default_claim(claim)
    fill(spec, defaults)
    strategy = mapping(spec, "strategy") or mapping(spec, "updateStrategy")
    if kind in _ROLLING_UPDATE and strategy.get("type") == "RollingUpdate":
        fill(strategy, {"rollingUpdate": _ROLLING_UPDATE[kind]})
    if labels := mapping(template, "metadata", "labels"):
        if kind in LABELLED_BY_TEMPLATE:
            fill_empty(mapping(workload, "metadata"), {"labels": dict(labels)})
        if kind == "ReplicationController":
            fill_empty(spec, {"selector": dict(labels)})


def _default_job(spec: AnyJSON) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index, policy = spec.get("backoffLimitPerIndex"), spec.get("podFailurePolicy")
    fill(
        spec,
        {
            "backoffLimit": 6 if per_index is None else 2**31 - 1,
            "podReplacementPolicy": "TerminatingOrFailed" if policy is None else "Failed",
        },
    )


def _default_template(template: AnyJSON) -> None:
    if template:
        fill(template, {"metadata": {}})
    _default_pod_spec(mapping(template, "spec"))


def _default_pod_spec(spec: AnyJSON) -> None:
    if not spec:
        return
    fill(spec, _POD_SPEC)
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):  # two names of one field
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    canonical(mapping(spec, "overhead"))
    _default_resources(mapping(spec, "resources"))
    for volume in items_of(spec, "volumes"):
        _default_volume(volume)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in items_of(spec, field):
            _default_container(container)


def _default_container(container: AnyJSON) -> None:
    fill(container, _CONTAINER)
    fill(container, {"imagePullPolicy": _pull_policy(container.get("image"))})
    _default_resources(mapping(container, "resources"))
    for port in items_of(container, "ports"):
        fill(port, {"protocol": "TCP"})
    for variable in items_of(container, "env"):
        if source := mapping(variable, "valueFrom"):
            _default_value_source(source)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := mapping(container, name):
            fill_empty(probe, _PROBE)
            fill_if_there(probe, "httpGet", _HTTP_GET)
            fill_if_there(probe, "grpc", {"service": ""})
    if hooks := mapping(container, "lifecycle"):
        for hook in ("postStart", "preStop"):
            fill_if_there(mapping(hooks, hook), "httpGet", _HTTP_GET)


def _default_volume(volume: AnyJSON) -> None:
    if all(source is None for name, source in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    for source in VOLUME_DEFAULTS.keys() & volume.keys():
        fill_if_there(volume, source, VOLUME_DEFAULTS[source])
    if image := mapping(volume, "image"):
        fill(image, {"pullPolicy": _pull_policy(image.get("reference"))})
    if "ephemeral" in volume:
        _default_claim(mapping(volume, "ephemeral", "volumeClaimTemplate"))
    canonical(mapping(volume, "emptyDir"), ("sizeLimit",))
    sources = items_of(mapping(volume, "projected"), "sources")
    for source in sources:
        fill_if_there(source, "serviceAccountToken", {"expirationSeconds": 3600})
    for holder in (volume, *sources):
        for item in mappings_at(holder, "downwardAPI.items[*]"):
            _default_value_source(item)


def _default_claim(claim: AnyJSON) -> None:
    fill(claim, {"metadata": {}})
    fill_if_there(claim, "spec", {"volumeMode": "Filesystem"})
    _default_resources(mapping(claim, "spec", "resources"))


def _default_value_source(source: AnyJSON) -> None:
    fill_if_there(source, "fieldRef", {"apiVersion": "v1"})
    fill_if_there(source, "fileKeyRef", {"optional": False})
    if isinstance(field := source.get("resourceFieldRef"), dict):
        fill(field, {"divisor": "0"})
        canonical(field, ("divisor",))


def _default_resources(resources: AnyJSON) -> None:
    if resources:
        canonical(mapping(resources, "limits"))
        canonical(mapping(resources, "requests"))


def _pull_policy(image: AnyJSON) -> str:
    name, _, digest = str(image or "").partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
