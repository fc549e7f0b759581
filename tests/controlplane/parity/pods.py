"""Hypothesis strategies for Pods as people write them, which an API server accepts.

tests/strategies.py varies the fields that rules read; this module adds the fields that API servers default, and removes
the values that they reject.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from tests import strategies
from tests.controlplane.parity.corpus import PLAIN, namespaces

JSON = dict[str, Any]

RESERVED = "foo.coreweave.cloud/bar"
BREAK_GLASS = "spotgate.dev/break-glass"

_PARTS: Final = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text())
QUANTITIES, PROBES, VARIABLES, PORTS, VOLUMES = (
    _PARTS[name] for name in ("quantities", "probes", "variables", "ports", "volumes")
)

SPEC: dict[str, st.SearchStrategy[Any]] = {
    "automountServiceAccountToken": st.booleans(),
    "dnsPolicy": st.sampled_from(("Default", "ClusterFirst", "")),
    "enableServiceLinks": st.booleans(),
    "hostNetwork": st.booleans(),
    "nodeName": st.just("cpu-spot-0"),
    "schedulingGates": st.just([{"name": "example.com/quota"}]),
    "securityContext": st.sampled_from(({}, {"runAsNonRoot": True}, {"runAsUser": 0, "fsGroup": 0})),
    "shareProcessNamespace": st.booleans(),
    "subdomain": st.sampled_from(("", "web")),
    "topologySpreadConstraints": st.just(
        [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]
    ),
    "volumes": st.lists(st.sampled_from(VOLUMES), max_size=3).map(
        lambda sources: [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    ),
}
CONTAINER: dict[str, st.SearchStrategy[Any]] = {
    "env": st.lists(st.sampled_from(VARIABLES), max_size=3, unique_by=lambda variable: variable["name"]),
    "image": st.sampled_from(("example.com/app:1", "example.com:5000/app", "app:latest", f"app@sha256:{'a' * 64}")),
    "imagePullPolicy": st.sampled_from(("", "Always", "Never")),
    "livenessProbe": st.sampled_from(PROBES),
    "ports": st.lists(st.sampled_from(PORTS), max_size=1),
    "readinessProbe": st.sampled_from(PROBES),
    "resources": strategies.sometimes(
        limits=st.dictionaries(st.sampled_from(("cpu", "memory", "ephemeral-storage")), st.sampled_from(QUANTITIES)),
        requests=st.dictionaries(st.sampled_from(("cpu", "memory")), st.sampled_from(QUANTITIES)),
    ),
    "securityContext": st.sampled_from(({}, {"readOnlyRootFilesystem": True}, {"capabilities": {"drop": ["ALL"]}})),
    "startupProbe": st.sampled_from(PROBES),
    "terminationMessagePolicy": st.sampled_from(("File", "FallbackToLogsOnError")),
    "tty": st.booleans(),
}
NULLABLE = ("affinity", "initContainers", "nodeSelector", "securityContext", "terminationGracePeriodSeconds", "tolerations", "volumes")  # fmt: skip
CAPACITY = "spotgate.dev/capacity"
wishes: st.SearchStrategy[JSON] = st.sampled_from(
    (
        {},
        {CAPACITY: "spot"},
        {CAPACITY: "spot"},
        {CAPACITY: "spot-preferred"},
        {CAPACITY: "on-demand"},
        {CAPACITY: "Spot"},
        {CAPACITY: None},
    )
)
LABELS: dict[str, st.SearchStrategy[str | None]] = {
    "app": st.sampled_from(("x", "")),
    "spotgate.dev/workload-class": st.sampled_from(("stateless", "queue-worker", "checkpointing", "odd")),
    RESERVED: st.just("x"),
    "qos.coreweave.cloud/interruptable": st.just("true"),
    "qos.coreweave.cloud/interruptible": st.sampled_from(("true", None)),
}
ANNOTATIONS: dict[str, st.SearchStrategy[str | None]] = {
    "spotgate.dev/node-pool": st.sampled_from((*strategies.POOL_NAMES, "h100-spot", "p9")),
    "spotgate.dev/keep": st.sampled_from(("grace-period", "pre-stop, node-selector", "tolerations", "nothing")),
    BREAK_GLASS: st.just("the fire drill"),
    "kubernetes.io/config.mirror": st.just("x"),
    "note": st.sampled_from(("", None, "on\ntwo lines")),
}


@st.composite
def few(draw: st.DrawFn, members: dict[str, st.SearchStrategy[Any]], most: int) -> JSON:
    """Draw a mapping with at most `most` of these members."""
    names = draw(st.lists(st.sampled_from(sorted(members)), max_size=most, unique=True))
    return {name: draw(members[name]) for name in names}


# Built once: building a strategy takes longer than drawing from it.
_pods = strategies.pods(labels={}, annotations={})
_placements: st.SearchStrategy[JSON] = st.one_of(st.just({}), strategies.placements())
_labels = few(LABELS, 1)
_annotations = few(ANNOTATIONS, 1)
_spec = few(SPEC, 3)
_container = few(CONTAINER, 2)
_nullable = st.sampled_from(NULLABLE)
_rarely = st.integers(0, 7).map(lambda number: number == 0)


@st.composite
def pods(draw: st.DrawFn) -> JSON:
    """Draw a Pod that an API server accepts, as people write it: with nulls, and mostly with a capacity label."""
    pod = draw(_pods)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["namespace"] = draw(namespaces)
    metadata["labels"] = {**draw(wishes), **draw(_labels)}
    metadata["annotations"] = draw(_annotations)
    if draw(_rarely):
        metadata["generateName"] = f"{metadata.pop('name')}-"
    spec.update(draw(_spec))
    spec.update(draw(_placements))
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.update(draw(_container))
    spec.setdefault(draw(_nullable), None)
    return valid(pod)


def everything() -> JSON:
    """Return a Pod with all volumes, variables, ports, and probes above, and all fields that have defaults."""
    main = {"name": "main", "image": "app", "env": [*VARIABLES], "ports": [*PORTS]}
    probed = [
        {
            "name": f"probed{number}",
            "image": "app",
            "livenessProbe": probe,
            "readinessProbe": probe,
            "startupProbe": probe,
        }
        for number, probe in enumerate(PROBES)
    ]
    hooked = {"name": "hooked", "image": "app", "lifecycle": {"postStart": {"httpGet": {"port": 80}}}}
    sized = {"name": "sized", "image": "app", "resources": {"limits": {"cpu": 2.5, "memory": "2048Mi"}}}
    volumes = [{"name": f"v{number}", **source} for number, source in enumerate(VOLUMES)]
    spec = {
        "containers": [main, *probed, hooked, sized],
        "initContainers": [{"name": "init", "image": "app:1"}],
        "resources": {"limits": {"cpu": 4.0, "memory": "4096Mi"}},
        "volumes": volumes,
    }
    metadata = {"name": "new", "namespace": PLAIN, "labels": {}, "annotations": {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def valid(pod: JSON) -> JSON:
    """Return the Pod without the values that an API server rejects."""
    metadata, spec = pod["metadata"], pod["spec"]
    for owner in metadata.get("ownerReferences", ()):
        owner["uid"] = "705ab4f5-6393-11e8-b7cc-42010a800002"
    if "kubernetes.io/config.mirror" in metadata["annotations"]:
        spec["nodeName"] = "cpu-spot-0"
    if "os" in spec and spec["os"]["name"] == "windows":
        for holder in (spec, *spec["containers"], *(spec.get("initContainers") or ())):
            holder.pop("securityContext", None)
        spec.pop("shareProcessNamespace", None)
    if "nodeName" in spec:
        spec.pop("schedulingGates", None)
    grace = spec.get("terminationGracePeriodSeconds")
    for container in spec["containers"]:
        _valid_container(container, spec, 30 if grace is None else max(grace, 1))
    for container in spec.get("initContainers") or ():
        _valid_container(container, spec, 30 if grace is None else max(grace, 1))
        if container.get("restartPolicy") != "Always":  # not a sidecar
            for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                container.pop(name, None)
    return pod


def _valid_container(container: JSON, spec: JSON, grace: int) -> None:
    for hook in (container.get("lifecycle") or {}).values():
        if "sleep" in hook:
            hook["sleep"]["seconds"] = min(hook["sleep"]["seconds"], grace)
    _agree(container.get("resources") or {})
    for probe in ("livenessProbe", "startupProbe"):
        if probe in container:
            container[probe] = {**container[probe], "successThreshold": 1}
    if spec.get("hostNetwork"):
        container["ports"] = []


def _agree(resources: JSON) -> None:
    """Set each request to its limit: a request must not exceed it, and extended resources must have equal ones."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if extended := {name: amount for name, amount in requests.items() if "/" in name}:
        resources["limits"] = limits = {**limits, **extended}
    requests.update({name: limits[name] for name in requests if name in limits})
