"""Change Pods, and record each change as a patch operation. No other module creates patch operations.

Each method changes the typed Pod and records the smallest operation for the change. Methods create missing parents and
append to lists. Only methods whose docstring says so overwrite an existing value.
"""

from __future__ import annotations

from functools import partial
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
    from collections.abc import Callable, Sequence

    from webhook.kube.containers import PlacedContainer
    from webhook.kube.pod import Volume, VolumeMount

_AFFINITY: Final = "/spec/affinity"
_NODE: Final = f"{_AFFINITY}/nodeAffinity"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def as_json(value: Any) -> Any:
    """Return a part of a Pod as JSON, without null members."""
    return msgspec.json.decode(msgspec.json.encode(value))


class PodEditor:
    """A Pod and a record of its changes.

    Attributes:
        policy: the name of the policy that makes the changes; the engine sets it.
        operations: the changes, in order.
    """

    __slots__ = ("_inverses", "operations", "pod", "policy")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.policy = ""
        self.operations: list[Operation] = []
        self._inverses: list[Callable[[], object]] = []

    def undo(self, kept: int) -> None:
        """Undo all changes after the first ``kept`` operations."""
        while len(self.operations) > kept:
            self.operations.pop()
            self._inverses.pop()()

    def _add(self, path: str, value: Any, inverse: Callable[[], object]) -> None:
        """Record a change, before it is made, so that no change lacks its inverse."""
        self.operations.append(Operation(path, value, self.policy))
        self._inverses.append(inverse)

    def _set(self, owner: msgspec.Struct, member: str, path: str, value: Any) -> None:
        """Set the member at ``path``."""
        inverse = partial(setattr, owner, member, getattr(owner, member))
        self._add(path, value if isinstance(value, int) else as_json(value), inverse)
        setattr(owner, member, value)

    def _append(self, owner: msgspec.Struct, member: str, path: str, item: msgspec.Struct) -> None:
        """Append to the list at ``path``. Create the list if it is missing."""
        items = getattr(owner, member)
        if items is None:
            self._set(owner, member, path, [item])
        else:
            self._add(f"{path}/-", as_json(item), items.pop)
            items.append(item)

    def _put(self, owner: msgspec.Struct, member: str, path: str, key: str, value: str) -> None:
        """Add an entry to the map at ``path``. Create the map if it is missing."""
        entries = getattr(owner, member)
        if entries is None:
            self._set(owner, member, path, {key: value})
        else:
            self._add(f"{path}{pointer((key,))}", value, partial(entries.pop, key))
            entries[key] = value

    def add_toleration(self, toleration: Toleration) -> None:
        """Append a toleration. The caller checks first that no existing toleration covers it."""
        self._append(self.pod.spec, "tolerations", "/spec/tolerations", toleration)

    def add_node_selector(self, key: str, value: str) -> None:
        """Add one entry to ``nodeSelector``. The caller checks first that the key is absent."""
        self._put(self.pod.spec, "nodeSelector", "/spec/nodeSelector", key, value)

    def add_label(self, key: str, value: str) -> None:
        """Add a label. The caller checks first that the key is absent."""
        self._put(self.pod.metadata, "labels", "/metadata/labels", key, value)

    def add_volume(self, volume: Volume) -> None:
        """Append a volume. The caller checks first that the name is free."""
        self._append(self.pod.spec, "volumes", "/spec/volumes", volume)

    def add_mount(self, placed: PlacedContainer, mount: VolumeMount) -> None:
        """Append a mount to a container. The caller checks first that the path is free."""
        self._append(placed.container, "volumeMounts", f"/spec/{placed.members}/{placed.index}/volumeMounts", mount)

    def require(self, *alternatives: Sequence[Requirement]) -> None:
        """Require one of the alternatives in the required node affinity. Each is a list of ANDed requirements.

        Terms are ORed, so each existing term gets the first alternative, and a copy of the term is appended for each
        further alternative. A term without requirements matches no node. It stays unchanged, because with a requirement
        it would match nodes.
        """
        if (required := required_of(self.pod.spec)) is None:
            alternatives_of_pod = [NodeSelectorTerm(list(alternative)) for alternative in alternatives]
            self._add_node_affinity(_REQUIRED, NodeSelector(alternatives_of_pod))
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
            self._append(term, "matchExpressions", f"{path}/{index}/matchExpressions", requirement)
        for term in copies:
            self._append(required, "terms", path, term)

    def prefer(self, weight: int, *requirements: Requirement) -> None:
        """Append a preferred node affinity term with these ANDed requirements."""
        term = PreferredTerm(weight, NodeSelectorTerm(list(requirements)))
        affinity = self.pod.spec.affinity
        if affinity is not None and affinity.nodeAffinity is not None:
            self._append(affinity.nodeAffinity, _PREFERRED, f"{_NODE}/{_PREFERRED}", term)
        else:
            self._add_node_affinity(_PREFERRED, [term])

    def gate(self, name: str, *, closed: bool) -> None:
        """Add a scheduling gate if it is ``closed``. Otherwise, remove it."""
        path = "/spec/schedulingGates"
        if closed:
            self._append(self.pod.spec, "schedulingGates", path, SchedulingGate(name))
        else:
            others = [gate for gate in self.pod.spec.schedulingGates or () if gate.name != name]
            self._set(self.pod.spec, "schedulingGates", path, others)

    def remove_label(self, key: str) -> None:
        """Remove a label, which must exist."""
        metadata = self.pod.metadata
        others = {name: value for name, value in (metadata.labels or {}).items() if name != key}
        self._set(metadata, "labels", "/metadata/labels", others)

    def set_grace(self, seconds: int) -> None:
        """Set ``terminationGracePeriodSeconds``. Overwrite any existing value."""
        self._set(self.pod.spec, "terminationGracePeriodSeconds", "/spec/terminationGracePeriodSeconds", seconds)

    def set_pre_stop(self, index: int, handler: Handler) -> None:
        """Add a preStop hook to the container at ``spec.containers[index]``, which has none."""
        container = self.pod.spec.containers[index]
        path = f"/spec/containers/{index}/lifecycle"
        if container.lifecycle is None:
            self._set(container, "lifecycle", path, Lifecycle(preStop=handler))
        else:
            self._set(container.lifecycle, "preStop", f"{path}/preStop", handler)

    def _add_node_affinity(self, member: str, value: Any) -> None:
        """Set a member of the node affinity. Create its missing parents."""
        affinity = self.pod.spec.affinity
        if affinity is None:
            self._set(self.pod.spec, "affinity", _AFFINITY, Affinity(NodeAffinity(**{member: value})))
        elif affinity.nodeAffinity is None:
            self._set(affinity, "nodeAffinity", _NODE, NodeAffinity(**{member: value}))
        else:
            self._set(affinity.nodeAffinity, member, f"{_NODE}/{member}", value)


def native_sleep(seconds: int) -> Handler:
    """Return a native preStop sleep. It requires API server and kubelet 1.30 or later, and nothing in the image."""
    return Handler(sleep=Sleep(seconds))


def exec_sleep(seconds: int) -> Handler:
    """Return a preStop sleep for older clusters. It requires a shell in the image, and doesn't work on Windows."""
    return Handler(exec=ExecAction(("/bin/sh", "-c", f"sleep {seconds}")))
