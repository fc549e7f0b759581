"""The scheduler's predicates, written from the documentation: labels, taints, resources, and preferred node affinity.

They read plain manifests, and share no code with `webhook`. `tests/controlplane/oracle` compares them with kube-scheduler.

Sources: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/,
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/, and
https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JSON = dict[str, Any]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

_QUANTITY: Final = re.compile(r"([0-9.]+)(m|[kMGT]?i?)")
_UNITS: Final = {
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("", "k", "M", "G", "T"))},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
}


def can_run(pod: JSON, node: JSON) -> bool:
    """Return whether kube-scheduler may bind the Pod to the Node, if no other Pod is there."""
    return selects(pod, node) and not repelled_by(pod, node) and fits(pod, node)


def selects(pod: JSON, node: JSON) -> bool:
    """Return whether nodeSelector and required node affinity admit the Node: both must, and one term is enough."""
    labels = node["metadata"]["labels"]
    selected = all(labels.get(key) == value for key, value in pod["spec"].get("nodeSelector", {}).items())
    return selected and (terms_of(pod) is None or any(matches(term, node) for term in terms_of(pod) or ()))


def terms_of(pod: JSON) -> list[JSON] | None:
    """Return the terms of the required node affinity, or None without one."""
    required = _node_affinity(pod).get(REQUIRED)
    return None if required is None else list(required["nodeSelectorTerms"])


def matches(term: JSON, node: JSON) -> bool:
    """Return whether all requirements of a term are true. An empty term matches no Node."""
    requirements = [(need, node["metadata"]["labels"]) for need in term.get("matchExpressions") or ()]
    requirements += [(need, {"metadata.name": node["metadata"]["name"]}) for need in term.get("matchFields") or ()]
    return bool(requirements) and all(_is_true(need, values) for need, values in requirements)


def _is_true(need: JSON, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(need["key"]), need.get("values") or []
    match need["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not re.fullmatch(r"[+-]?\d+", value):
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    raise ValueError(need["operator"])


def preference(pod: JSON, node: JSON) -> int:
    """Return the sum of the weights of the preferred terms that match the Node. An empty preference matches none."""
    preferred = _node_affinity(pod).get(PREFERRED) or ()
    return sum(entry["weight"] for entry in preferred if matches(entry["preference"], node))


def _node_affinity(pod: JSON) -> JSON:
    affinity: JSON = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity


def repelled_by(pod: JSON, node: JSON) -> list[JSON]:
    """Return the taints that keep the Pod off the Node: NoSchedule and NoExecute ones that it doesn't tolerate."""
    hard = (taint for taint in node["spec"].get("taints") or () if taint["effect"] != "PreferNoSchedule")
    return [taint for taint in hard if not tolerates(pod, taint)]


def tolerates(pod: JSON, taint: JSON) -> bool:
    """Return whether one of the Pod's tolerations matches the taint."""
    return any(_covers(toleration, taint) for toleration in pod["spec"].get("tolerations") or ())


def _covers(toleration: JSON, taint: JSON) -> bool:
    key, effect = toleration.get("key"), toleration.get("effect")
    if (key and key != taint["key"]) or (effect and effect != taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def fits(pod: JSON, node: JSON) -> bool:
    """Return whether the Node's allocatable resources are enough for the Pod alone."""
    allocatable = node["status"]["allocatable"]
    requests = requests_of(pod)
    return all(quantity <= _number(allocatable.get(name, 0)) for name, quantity in requests.items() if quantity)


def requests_of(pod: JSON) -> dict[str, Fraction]:
    """Return what the Pod requests: the sum of its containers, or the largest init container, and the overhead.

    A limit without a request is the request. Sidecars aren't supported.
    """
    spec = pod["spec"]
    total = _sum(map(_requests, spec["containers"]))
    for container in spec.get("initContainers") or ():
        total |= {name: max(quantity, total.get(name, quantity)) for name, quantity in _requests(container).items()}
    return _sum((total, _numbers(spec.get("overhead") or {})))


def _requests(container: JSON) -> dict[str, Fraction]:
    resources = container.get("resources") or {}
    return _numbers({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        total |= {name: total.get(name, Fraction()) + quantity for name, quantity in part.items()}
    return total


def _numbers(quantities: Mapping[str, object]) -> dict[str, Fraction]:
    return {name: _number(text) for name, text in quantities.items()}


def _number(text: object) -> Fraction:
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(text)
    return Fraction(match[1]) * _UNITS[match[2]]
