"""A model of the scheduler: nodeSelector, required node affinity, GPUs, and taints.

It shares no code with the program, and reads plain manifests.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def is_spot(pool: JSON) -> bool:
    """Return whether a CKS node pool is spot."""
    return str(pool["spec"].get("computeClass")).lower() == "spot"


def may_have_nodes(pool: JSON) -> bool:
    """Return whether the pool has nodes, or its autoscaler may add some."""
    spec = pool["spec"]
    return bool(spec.get("maxNodes", 1) > 0 if spec.get("autoscaling") else spec["targetNodes"] > 0)


def has_gpus(pool: JSON) -> bool:
    """Return whether CKS's instance ID has GPUs: ``gd-8xh100ib-i128`` and ``b200-8x`` do; ``turin-gp`` doesn't."""
    return "8x" in pool["spec"]["instanceType"] or "4x" in pool["spec"]["instanceType"]


def wants_gpus(pod: JSON) -> bool:
    """Return whether a container requests a GPU."""
    return any(
        name.startswith("nvidia.com/") and str(quantity) != "0"
        for group in ("containers", "initContainers")
        for container in pod["spec"].get(group) or ()
        for quantities in (container.get("resources") or {}).values()
        for name, quantity in quantities.items()
    )


def can_run_on(pod: JSON, pool: JSON, *, undeclared: bool) -> bool:
    """Return whether a node of the pool can run the Pod; ``undeclared`` is the result for undeclared labels."""
    labels = {
        "compute.coreweave.com/node-pool": pool["metadata"]["name"],
        "node.kubernetes.io/instance-type": pool["spec"]["instanceType"],
        **(pool["spec"].get("nodeLabels") or {}),
    }
    spec = pod["spec"]
    selected = all(
        labels.get(key) == value if key in labels else undeclared
        for key, value in (spec.get("nodeSelector") or {}).items()
    )
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return (
        selected
        and (required is None or any(_suits(term, labels, undeclared) for term in required["nodeSelectorTerms"]))
        and (has_gpus(pool) or not wants_gpus(pod))
        and tolerates_all(pod, pool)
    )


def tolerates_all(pod: JSON, pool: JSON) -> bool:
    """Return whether the Pod tolerates all of the pool's taints that would exclude it."""
    return all(
        any(_tolerates(toleration, taint) for toleration in pod["spec"].get("tolerations") or ())
        for taint in pool["spec"].get("nodeTaints") or ()
        if taint["effect"] != "PreferNoSchedule"
    )


def _suits(term: JSON, labels: Mapping[str, str], undeclared: bool) -> bool:  # noqa: FBT001
    requirements = term.get("matchExpressions") or []
    return bool(requirements) and all(
        _holds(requirement, labels.get(requirement["key"])) if requirement["key"] in labels or not undeclared else True
        for requirement in requirements
    )


def _holds(requirement: JSON, value: str | None) -> bool:
    return {
        "In": value in requirement.get("values", ()),
        "NotIn": value not in requirement.get("values", ()),
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[str(requirement["operator"])]


def _tolerates(toleration: JSON, taint: JSON) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
