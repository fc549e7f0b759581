"""Count the Pods of each ReplicaSet, and choose the next Pods to assign and their capacity.

A Pod is assigned to spot only if enough other Pods are known to be on demand. Pending assignments count conservatively:
an assignment to on-demand counts after the API server accepts it, and an assignment to spot counts immediately.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.controller.pods import FloorPod

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
RELEASE: Final = ""
"""An assignment that only removes the gate."""
_CONFLICTS_AT_MOST: Final = 5
"""The number of conflicts after which a Pod is only released. With the pauses of the leader, they take 4 s."""


class Assignment(msgspec.Struct, frozen=True):
    """One Pod and its assignment: `ON_DEMAND`, `SPOT`, or `RELEASE`."""

    pod: FloorPod
    capacity: str


class Ledger:
    """The Pods of workloads with a floor, according to the watch and the answers to PATCHes.

    Args:
        is_on_demand: returns whether the Node with this name is on demand; False for unknown Nodes.
    """

    def __init__(self, is_on_demand: Callable[[str], bool]) -> None:
        self._is_on_demand = is_on_demand
        self._pods: dict[str, dict[str, FloorPod]] = {}
        self._waiting_since: dict[str, float] = {}
        self._sent: dict[str, str] = {}
        self._answered: set[str] = set()
        self._open: set[str] = set()
        self._refused: set[str] = set()
        self._conflicts: Counter[str] = Counter()

    def replace(self, before: FloorPod | None, after: FloorPod | None) -> str:
        """Handle a change of one Pod that the watch reports. Return the UID of its owner.

        ``before`` is None for a new Pod, and ``after`` for a deleted one.
        """
        pod = after or before
        if pod is None:
            return ""
        if before is not None:
            siblings = self._pods.get(before.owner, {})  # a ReplicaSet disowns Pods that its selector doesn't match
            siblings.pop(before.uid, None)
            if not siblings:
                self._pods.pop(before.owner, None)
            if after is None or after.uid != before.uid:
                self._forget(before.uid)
        if after is not None:
            self._pods.setdefault(after.owner, {})[after.uid] = after
            if after.gated and after.alive:
                self._waiting_since.setdefault(after.uid, monotonic())
            else:
                self._forget(after.uid)
        return pod.owner

    def _forget(self, uid: str) -> None:
        self._waiting_since.pop(uid, None)
        self._sent.pop(uid, None)
        self._conflicts.pop(uid, None)
        for uids in (self._answered, self._open, self._refused):
            uids.discard(uid)

    def due(self, owner: str) -> list[Assignment]:
        """Return the assignments to send now for the Pods of one ReplicaSet.

        Assignments to on-demand come first. Assignments to spot follow after the API server has accepted all of them.
        """
        pods = [pod for pod in self._pods.get(owner, {}).values() if pod.alive]
        if not any(pod.gated for pod in pods):
            return []
        count = sum(1 for pod in pods if self._is_settled(pod))
        kept = sum(1 for pod in pods if self._is_kept(pod))
        coming = sum(1 for pod in pods if self._sent.get(pod.uid) == ON_DEMAND and pod.uid not in self._answered)
        chosen: dict[str, list[Assignment]] = {RELEASE: [], ON_DEMAND: [], SPOT: []}
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.name)):
            if not pod.gated or pod.uid in self._sent.keys() - self._open:
                continue
            capacity = self._sent.get(pod.uid, RELEASE)
            # Recompute an unanswered assignment to spot, because on-demand Pods may have been deleted since.
            if capacity != ON_DEMAND and pod.floor is not None and pod.uid not in self._refused:
                count += pod.uid not in self._sent
                planned = kept + coming + len(chosen[ON_DEMAND])
                capacity = ON_DEMAND if planned < pod.floor.need(count) else SPOT
            chosen[capacity].append(Assignment(pod, capacity))
        waits = coming or chosen[ON_DEMAND]  # unanswered assignments count as coming
        return [*chosen[RELEASE], *chosen[ON_DEMAND], *([] if waits else chosen[SPOT])]

    def _is_settled(self, pod: FloorPod) -> bool:
        """Return whether the Pod counts: it is bound or assigned, or its assignment is in flight."""
        if pod.gated:
            return self._sent.get(pod.uid, RELEASE) != RELEASE
        return bool(pod.node or pod.assigned)

    def _is_kept(self, pod: FloorPod) -> bool:
        """Return whether the Pod counts as on demand. If the Pod is bound, its Node decides instead of its label."""
        if pod.node:
            return self._is_on_demand(pod.node)
        if pod.gated:
            return pod.uid in self._answered and self._sent[pod.uid] == ON_DEMAND
        return pod.assigned == ON_DEMAND

    def send(self, assignment: Assignment) -> bool:
        """Record that an assignment is sent. Return False if it is no longer due: Pods or Nodes have changed."""
        pod = assignment.pod
        if not self._is_still_due(pod, assignment.capacity):
            return False
        self._sent[pod.uid] = assignment.capacity
        self._open.discard(pod.uid)
        return True

    def _is_still_due(self, pod: FloorPod, capacity: str) -> bool:
        siblings = self._pods.get(pod.owner, {})
        current = siblings.get(pod.uid)
        if current is None or not (current.gated and current.alive):
            return False
        if capacity != SPOT or pod.floor is None:
            return True
        others = [other for other in siblings.values() if other.alive and other.uid != pod.uid]
        count = 1 + sum(1 for other in others if self._is_settled(other))
        return sum(1 for other in others if self._is_kept(other)) >= pod.floor.need(count)

    def confirm(self, pod: FloorPod) -> float:
        """Record that the API server has accepted the assignment. Return the seconds that the Pod waited."""
        self._answered.add(pod.uid)
        waited = monotonic() - self._waiting_since.pop(pod.uid, monotonic())
        if pod.uid not in self._pods.get(pod.owner, {}):  # deleted in the meantime
            self._forget(pod.uid)
        return waited

    def reopen(self, pod: FloorPod, *, conflict: bool = False) -> None:
        """Record that the result of an assignment is unknown. The assignment still counts, and is due again.

        A Pod that changes too often at the time of its assignment (``conflict``) is due for release only.
        """
        if pod.uid in self._sent:
            self._open.add(pod.uid)
        if conflict and pod.uid in self._waiting_since:
            self._conflicts[pod.uid] += 1
            if self._conflicts[pod.uid] >= _CONFLICTS_AT_MOST:
                self.refuse(pod)

    def refuse(self, pod: FloorPod) -> None:
        """Record that the API server rejects the assignment. The Pod is due for release only."""
        self._sent.pop(pod.uid, None)
        self._refused.add(pod.uid)

    def reset(self) -> None:
        """Forget all sent assignments, because another leader may have assigned Pods since."""
        for sent in (self._sent, self._answered, self._open):
            sent.clear()

    @property
    def owners(self) -> Iterator[str]:
        """Yield the UIDs of the ReplicaSets with a gated Pod."""
        for owner, pods in self._pods.items():
            if any(pod.gated for pod in pods.values()):
                yield owner

    def oldest(self) -> float:
        """Return the seconds for which the longest-waiting Pod has waited."""
        now = monotonic()
        return now - min(self._waiting_since.values(), default=now)

    def tally(self) -> dict[str, int]:
        """Return the number of living Pods by assignment; ``gated`` counts unassigned Pods."""
        counts = {ON_DEMAND: 0, SPOT: 0, "gated": 0}
        for pods in self._pods.values():
            for pod in pods.values():
                if pod.alive and (pod.gated or self._is_settled(pod)):
                    counts["gated" if pod.gated else ON_DEMAND if self._is_kept(pod) else SPOT] += 1
        return counts
