"""Existing objects of the cluster, and hypothesis strategies that change them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests import strategies
from tests.controlplane.parity.corpus import PLAIN
from tests.controlplane.parity.pods import LABELS, RESERVED, few, wishes
from tests.controlplane.parity.workloads import SCALE, SELECTOR, node_pools

JSON = dict[str, Any]

# As people write it: with empty, false, or zero members, which the API server drops.
TEMPLATE: JSON = {
    "metadata": {"labels": {"app": "x", "spotgate.dev/capacity": "spot", RESERVED: "x"}, "annotations": {}},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "example.com/app:1",
                "env": [],
                "ports": [{"containerPort": 8080, "hostPort": 0}],
                "resources": {"limits": {"memory": "1024Mi"}, "requests": {}},
                "tty": False,
            }
        ],
        "hostNetwork": False,
        "nodeSelector": {"compute.coreweave.com/node-pool": "p2"},  # an on-demand pool, which causes a warning
        "terminationGracePeriodSeconds": 600,
        "tolerations": [{"key": "example.com/team", "operator": "Exists", "effect": "", "value": ""}],
        "volumes": None,
    },
}
POD: JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {**TEMPLATE["metadata"], "name": "old", "namespace": PLAIN},
    "spec": TEMPLATE["spec"],
}
DEPLOYMENT: JSON = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "old", "namespace": PLAIN, "labels": {RESERVED: "x"}},
    "spec": {**SELECTOR, "replicas": 0, "paused": False, "template": TEMPLATE},
}
RAY_CLUSTER: JSON = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "old", "namespace": PLAIN, "labels": {RESERVED: "x"}},
    "spec": {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "w", "template": TEMPLATE}, {"groupName": "v", "template": TEMPLATE}],
    },
}

_labels = few({**LABELS, RESERVED: st.sampled_from(("x", "y"))}, 1)
_scale = few(SCALE, 1)
_order = st.sampled_from(((0, 1), (1, 0), (0,), (1,), ()))
_pools = node_pools()
_names = st.sampled_from((*strategies.POOL_NAMES, "h100", "h100-spot", "cpu-spot"))


def _relabel(draw: st.DrawFn, holder: JSON) -> None:
    labels = holder["metadata"].setdefault("labels", {})
    labels.update(draw(_labels))
    labels.update(draw(wishes))
    if draw(st.booleans()):
        labels.pop(RESERVED, None)
    labels["app"] = "x"  # the selector's


def _relabel_some(draw: st.DrawFn, *holders: JSON) -> None:
    for holder in holders:
        if draw(st.booleans()):
            _relabel(draw, holder)


def _copy(thing: JSON) -> JSON:
    copy: JSON = json.loads(json.dumps(thing))
    return copy


@st.composite
def relabelled(draw: st.DrawFn, thing: JSON) -> JSON:
    """Return the object with other labels."""
    changed = _copy(thing)
    _relabel(draw, changed)
    return changed


@st.composite
def deployments(draw: st.DrawFn) -> JSON:
    """Draw DEPLOYMENT with some changes or none."""
    changed = _copy(DEPLOYMENT)
    spec = changed["spec"]
    _relabel_some(draw, changed, spec["template"])
    spec.update(draw(_scale))
    return changed


@st.composite
def ray_clusters(draw: st.DrawFn) -> JSON:
    """Draw RAY_CLUSTER with groups changed, moved, or removed."""
    changed = _copy(RAY_CLUSTER)
    spec = changed["spec"]
    groups = spec["workerGroupSpecs"]
    _relabel_some(draw, changed, spec["headGroupSpec"]["template"], groups[0]["template"])
    spec["workerGroupSpecs"] = [groups[number] for number in draw(_order)]
    return changed


@st.composite
def pools(draw: st.DrawFn) -> JSON:
    """Draw a different spec for an existing pool."""
    pool = draw(_pools)
    pool["metadata"]["name"] = draw(_names)
    return pool
