"""Choose the Pods that a drain evicts next, and the time of the next attempt."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.budget import unevicted_seconds
from webhook.kube.tolerations import tolerates
from webhook.rehearse.reasons import Cause, HarmReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.rehearse.result import ReclaimWindow
    from webhook.rehearse.runs.watching import SeenPod
    from webhook.rehearse.runs.workloads import RehearsedPod

PAUSE: Final = 5.0
"""Seconds between two eviction attempts: EvictErrorRetryDelay of `kubectl drain`. Karpenter backs off to 10 s.
https://github.com/kubernetes/kubectl/blob/v0.37.2/pkg/cmd/drain/drain.go"""

_CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})


class Drain:
    """The drains of all lost nodes, starting with the notice.

    Attributes:
        tried: the second of the last attempt.
    """

    def __init__(self) -> None:
        self.tried = -1.0
        self._began = datetime.now(UTC)
        self._windows: dict[str, ReclaimWindow] = {}
        self._listed: set[str] = set()

    def begin(self, window: ReclaimWindow, pods: Iterable[RehearsedPod]) -> None:
        """Start to drain the window's nodes. The drain lists the Pods that are on them now."""
        self._windows |= dict.fromkeys(window.nodes, window)
        self._listed.update(pod.seen.metadata.uid for pod in pods)

    def next_attempt(self, now: float, pods: Iterable[RehearsedPod]) -> float | None:
        """Return the second of the next attempt that may succeed, now or after a pause, or None if there is none."""
        held = ((self.held_until(pod.seen), self._windows[pod.seen.node].kill) for pod in pods)
        first = min((max(now, until) for until, kill in held if until < kill), default=None)
        if first is None:
            return None
        attempt = math.ceil(first / PAUSE) * PAUSE
        return attempt + PAUSE if attempt == self.tried else attempt

    def held_until(self, pod: SeenPod) -> float:
        """Return the second until which the Pod's annotation blocks its eviction."""
        seconds = unevicted_seconds(pod, self._windows[pod.node].unevicted)
        started = pod.status.startTime
        if started is None or math.isinf(seconds):
            return math.inf if seconds else 0.0
        return seconds - (self._began - started).total_seconds()

    def in_turn(self, now: float, pods: Iterable[RehearsedPod]) -> Iterator[RehearsedPod]:
        """Yield the Pods to evict now: on each node, the Pods of the first remaining tier."""
        by_node: defaultdict[str, list[tuple[int, RehearsedPod]]] = defaultdict(list)
        for pod in pods:
            window = self._windows.get(pod.seen.node)
            if window is not None and now < window.kill and not pod.seen.finished and not self.why_exempt(pod):
                by_node[pod.seen.node].append((_tier(pod.seen) if window.tiers else 0, pod))
        for on_node in by_node.values():
            first = min(tier for tier, _ in on_node)
            yield from (pod for tier, pod in on_node if tier == first and pod.seen.alive)

    def why_left(self, pod: RehearsedPod) -> HarmReason | None:
        """Return why the drain didn't try to evict the Pod, or None if its node isn't drained."""
        return (self.why_exempt(pod) or HarmReason(Cause.LATER)) if pod.seen.node in self._windows else None

    def why_exempt(self, pod: RehearsedPod) -> HarmReason | None:
        """Return why the drain skips the Pod, or None if it doesn't."""
        window = self._windows[pod.seen.node]
        if (taint := window.cordon_taint) and any(tolerates(own, taint) for own in pod.seen.spec.tolerations or ()):
            return HarmReason(Cause.TOLERATES, str(taint))
        if pod.leaves and not (window.tiers and _is_of_daemon_set(pod.seen)):
            return HarmReason(Cause.LEFT)
        if not window.tiers and pod.seen.metadata.uid not in self._listed:
            return HarmReason(Cause.BOUND_LATE)
        return None


def _is_of_daemon_set(pod: SeenPod) -> bool:
    return pod.controller is not None and pod.controller.kind == "DaemonSet"


def _tier(pod: SeenPod) -> int:
    """Return the position of a Pod in Karpenter's drain order: groupPodsByPriority in terminator.go.

    https://github.com/kubernetes-sigs/karpenter/blob/v1.14.1/pkg/controllers/node/termination/terminator/terminator.go
    """
    return 2 * (pod.spec.priorityClassName in _CRITICAL) + _is_of_daemon_set(pod)
