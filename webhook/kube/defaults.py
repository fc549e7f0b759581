"""Change manifests as the API server changes built-in objects before it calls webhooks.

The API server drops nulls and fills in defaults. Admission plugins that every cluster enables add a ServiceAccount, a
priority, and two tolerations to each Pod. The functions change plain JSON in place, and skip values of the wrong type.
They don't omit empty and zero members, derive ``spec.resources`` of a Pod from its containers, or add a volume for the
ServiceAccount token. Custom resources stay unchanged, because their defaults are in their CRDs.
`webhook.kube.defaults_objects` has the kinds without Pods.

Source: pkg/apis/{core,apps,batch}/v1/defaults.go and plugin/pkg/admission/{defaulttolerationseconds,priority,
serviceaccount} of Kubernetes 1.37, and the reviews that a kube-apiserver 1.37 sent to a webhook.
"""

from __future__ import annotations

from typing import Final

from webhook.kube.filling import TABLES, AnyJSON, canonical, fill, fill_at, fill_empty, items_of, mapping, mappings_at
from webhook.kube.tolerations import NO_EXECUTE

TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""The maps of strings, where an empty string is a valid value."""

_QUANTITIES: Final = frozenset({"limits", "requests", "overhead"})
_MAPS: Final = TEXTS | _QUANTITIES


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
        fill(spec, TABLES.created_pod)
        if not spec.get("priorityClassName"):
            fill(spec, TABLES.priority)


def default_tolerations(pod: AnyJSON) -> None:
    """Add five-minute tolerations for nodes that are not ready or unreachable, unless the Pod already has them."""
    spec = mapping(pod, "spec")
    if not spec or not isinstance(spec.get("tolerations"), list | None):
        return
    tolerations = items_of(spec, "tolerations")
    keys = {
        str(toleration.get("key") or "")
        for toleration in tolerations
        if (toleration.get("effect") or NO_EXECUTE) == NO_EXECUTE
    }
    added = [
        {"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if keys.isdisjoint((key, ""))
    ]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


LABELLED_BY_TEMPLATE: Final = frozenset({"Job", "ReplicationController"})
"""The kinds whose objects default to the labels of their pod template."""


def default_workload(group: str, kind: str, workload: AnyJSON) -> None:
    """Fill in a built-in object that contains a pod template. Leave objects of other kinds unchanged."""
    if (group, kind) == ("", "PodTemplate"):
        _default_template(mapping(workload, "template"))
    spec = mapping(workload, "spec")
    defaults = TABLES.workloads.get(f"{group}/{kind}")
    if not spec or defaults is None:
        return
    fill_at(spec, {"jobTemplate": {"metadata": {}}})
    holder = mapping(spec, "jobTemplate", "spec") if kind == "CronJob" else spec
    template = mapping(holder, "template")
    _default_template(template)
    fill_at(holder, {"podFailurePolicy.rules[*].onPodConditions[*]": {"status": "True"}})
    if kind == "Job":
        _default_job(spec)
    for claim in items_of(spec, "volumeClaimTemplates"):
        fill(claim, TABLES.claim)
        _default_claim(claim)
    fill(spec, defaults)
    strategy = mapping(spec, "strategy") or mapping(spec, "updateStrategy")
    if kind in TABLES.rolling_updates and strategy.get("type") == "RollingUpdate":
        fill(strategy, {"rollingUpdate": TABLES.rolling_updates[kind]})
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
    fill(spec, TABLES.pod_spec)
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):  # two names for one field
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    canonical(mapping(spec, "overhead"))
    _default_resources(mapping(spec, "resources"))
    for volume in items_of(spec, "volumes"):
        _default_volume(volume)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in items_of(spec, field):
            _default_container(container)


def _default_container(container: AnyJSON) -> None:
    fill_at(container, TABLES.container)
    fill(container, {"imagePullPolicy": _pull_policy(container.get("image"))})
    _default_resources(mapping(container, "resources"))
    _canonical_divisors(container, "env[*].valueFrom")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := mapping(container, name):
            fill_empty(probe, TABLES.probe)


def _default_volume(volume: AnyJSON) -> None:
    if all(source is None for name, source in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    fill_at(volume, TABLES.volume_sources)
    fill_at(volume, TABLES.volume_parts)
    if image := mapping(volume, "image"):
        fill(image, {"pullPolicy": _pull_policy(image.get("reference"))})
    if "ephemeral" in volume:
        _default_claim(mapping(volume, "ephemeral", "volumeClaimTemplate"))
    canonical(mapping(volume, "emptyDir"), ("sizeLimit",))
    _canonical_divisors(volume, "downwardAPI.items[*]")
    _canonical_divisors(volume, "projected.sources[*].downwardAPI.items[*]")


def _default_claim(claim: AnyJSON) -> None:
    fill(claim, {"metadata": {}})
    fill_at(claim, {"spec": {"volumeMode": "Filesystem"}})
    _default_resources(mapping(claim, "spec", "resources"))


def _canonical_divisors(value: AnyJSON, path: str) -> None:
    for field in mappings_at(value, f"{path}.resourceFieldRef"):
        canonical(field, ("divisor",))


def _default_resources(resources: AnyJSON) -> None:
    if resources:
        canonical(mapping(resources, "limits"))
        canonical(mapping(resources, "requests"))


def _pull_policy(image: AnyJSON) -> str:
    name, _, digest = str(image or "").partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
