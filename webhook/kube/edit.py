"""Change Pods, and record each change as a patch operation. Nothing else writes patch operations.

Each method changes the typed Pod and records the smallest operation for it: missing parents are created, lists are
appended to, and existing values are overwritten only where the method says so.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.kube.affinity import required_of
from webhook.kube.pod import (
    Affinity,
    ExecAction,
    Handler,
    Lifecycle,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PreferredTerm,
    Requirement,
    SchedulingGate,
    Sleep,
    Toleration,
)
from webhook.model.patch import Operation, pointer

if TYPE_CHECKING:
    from collections.abc import Sequence


_AFFINITY: Final = "/spec/affinity"
_NODE: Final = f"{_AFFINITY}/nodeAffinity"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def as_json(value: msgspec.Struct) -> Any:  # noqa: ANN401 - JSON
    """Return a part of a Pod as JSON, without what is null."""
    return msgspec.json.decode(msgspec.json.encode(value))


class PodEditor:
    """A Pod and the record of its changes.

    Attributes:
        policy: the name of the policy at work; the engine sets it.
        operations: the changes, in order.
    """

    __slots__ = ("operations", "pod", "policy")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.policy = ""
        self.operations: list[Operation] = []

    def _add(self, path: str, value: Any) -> None:  # noqa: ANN401 - JSON
        self.operations.append(Operation(path, value, self.policy))

    def add_toleration(self, toleration: Toleration) -> None:
        """Append a toleration. The caller has checked that no existing one covers it."""
        spec = self.pod.spec
        value = msgspec.to_builtins(toleration)
        if spec.tolerations is None:
            spec.tolerations = [toleration]
            self._add("/spec/tolerations", [value])
        else:
            spec.tolerations.append(toleration)
            self._add("/spec/tolerations/-", value)

    def add_node_selector(self, key: str, value: str) -> None:
        """Add one entry to ``nodeSelector``. The caller has checked that the key is absent."""
        spec = self.pod.spec
        if spec.nodeSelector is None:
            spec.nodeSelector = {key: value}
            self._add("/spec/nodeSelector", {key: value})
        else:
            spec.nodeSelector[key] = value
            self._add(f"/spec/nodeSelector{pointer((key,))}", value)

    def require(self, *alternatives: Sequence[Requirement]) -> None:
        """Require one of these alternatives, each a list of requirements that AND, in the required node affinity.

        Terms OR, so an existing term becomes one for each alternative: the first goes into it, and copies of it with
        the others are appended. A term without any requirement matches no node and is left alone: with a requirement it
        would begin to match.
        """
        if (required := required_of(self.pod.spec)) is None:
            required = NodeSelector([NodeSelectorTerm(list(alternative)) for alternative in alternatives])
            self._node_affinity(_REQUIRED, as_json(required)).requiredDuringSchedulingIgnoredDuringExecution = required
            return
        path = f"{_NODE}/{_REQUIRED}/nodeSelectorTerms"
        first, *others = alternatives
        terms = [
            (index, term)
            for index, term in enumerate(required.nodeSelectorTerms)
            if term.matchExpressions or term.matchFields
        ]
        copies = [
            NodeSelectorTerm([*(term.matchExpressions or ()), *other], term.matchFields)
            for _, term in terms
            for other in others
        ]
        for requirement, (index, term) in product(first, terms):
            expressions = f"{path}/{index}/matchExpressions"
            if term.matchExpressions is None:
                term.matchExpressions = [requirement]
                self._add(expressions, [as_json(requirement)])
            else:
                term.matchExpressions.append(requirement)
                self._add(f"{expressions}/-", as_json(requirement))
        for term in copies:
            required.nodeSelectorTerms.append(term)
            self._add(f"{path}/-", as_json(term))

    def prefer(self, weight: int, *requirements: Requirement) -> None:
        """Append a preferred node affinity term with these requirements, which AND."""
        term = PreferredTerm(weight, NodeSelectorTerm(list(requirements)))
        affinity = self.pod.spec.affinity
        node_affinity = affinity.nodeAffinity if affinity is not None else None
        preferred = node_affinity.preferredDuringSchedulingIgnoredDuringExecution if node_affinity is not None else None
        if preferred is None:
            self._node_affinity(_PREFERRED, [as_json(term)]).preferredDuringSchedulingIgnoredDuringExecution = [term]
        else:
            preferred.append(term)
            self._add(f"{_NODE}/{_PREFERRED}/-", as_json(term))

    def gate(self, name: str, *, closed: bool) -> None:
        """Add a scheduling gate, or remove it."""
        gates = self.pod.spec.schedulingGates or []
        if closed and gates:
            self._add("/spec/schedulingGates/-", {"name": name})
        else:
            kept = [{"name": name}] if closed else [{"name": gate.name} for gate in gates if gate.name != name]
            self._add("/spec/schedulingGates", kept)
        others = [gate for gate in gates if gate.name != name]
        self.pod.spec.schedulingGates = [*others, SchedulingGate(name)] if closed else others

    def set_grace(self, seconds: int) -> None:
        """Set ``terminationGracePeriodSeconds``, replacing any value."""
        self.pod.spec.terminationGracePeriodSeconds = seconds
        self._add("/spec/terminationGracePeriodSeconds", seconds)

    def set_pre_stop(self, index: int, handler: Handler) -> None:
        """Add a preStop hook to the container at ``spec.containers[index]``, which has none."""
        container = self.pod.spec.containers[index]
        path = f"/spec/containers/{index}/lifecycle"
        if container.lifecycle is None:
            container.lifecycle = Lifecycle(preStop=handler)
            self._add(path, {"preStop": as_json(handler)})
        else:
            container.lifecycle.preStop = handler
            self._add(f"{path}/preStop", as_json(handler))

    def _node_affinity(self, member: str, value: Any) -> NodeAffinity:  # noqa: ANN401 - JSON
        """Record a new member of the node affinity with its missing parents. Return the typed node affinity."""
        affinity = self.pod.spec.affinity
        node_affinity = affinity.nodeAffinity if affinity is not None else None
        if node_affinity is not None:
            self._add(f"{_NODE}/{member}", value)
            return node_affinity
        node_affinity = NodeAffinity()
        if affinity is not None:
            affinity.nodeAffinity = node_affinity
            self._add(_NODE, {member: value})
        else:
            self.pod.spec.affinity = Affinity(node_affinity)
            self._add(_AFFINITY, {"nodeAffinity": {member: value}})
        return node_affinity


def native_sleep(seconds: int) -> Handler:
    """Return a preStop sleep that needs API server and kubelet 1.30 or newer, and nothing in the image."""
    return Handler(sleep=Sleep(seconds))


def exec_sleep(seconds: int) -> Handler:
    """Return a preStop sleep for older clusters, which needs a shell in the image and does not suit Windows."""
    return Handler(exec=ExecAction(("/bin/sh", "-c", f"sleep {seconds}")))
