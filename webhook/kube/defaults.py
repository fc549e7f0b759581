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

from webhook.kube.filling import TABLES, AnyJSON, canonical, fill, fill_at, fill_empty, items_of, mapping, mappings_at

TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Members that map names to strings, in which an empty string is a value."""

_QUANTITIES: Final = frozenset({"limits", "requests", "overhead"})
_MAPS: Final = TEXTS | _QUANTITIES

_NO_EXECUTE: Final = "NoExecute"


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
            value[key] = {name: nothing if text is None else text for name, text in member.items()}
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
        fill(spec, TABLES.created_pod)
        if not spec.get("priorityClassName"):
            fill(spec, TABLES.priority)


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
