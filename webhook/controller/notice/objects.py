"""Read Nodes with a notice, and Pods that ask for it. They keep no text of any length: at most 2 KiB each."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.signals import Notice, SignalNode, notice_of, parse_time
from webhook.cluster.source import ListedMetadata, WatchedResource
from webhook.controller.pods import WatchedPod, decode_pod
from webhook.kube.notice import EVICT, INFORM, ON_RECLAIM, RECLAIM_AT
from webhook.kube.pod import DEFAULT_GRACE_SECONDS
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.capacity.providers.provider import Provider

_BOUND_TO_NODES: Final = frozenset({"DaemonSet.apps", "Node"})
"""The owners whose Pods an Eviction only restarts on the same Node."""


class NotifiedNode(msgspec.Struct, frozen=True):
    """A Node with a notice."""

    name: str
    uid: str
    notice: Notice


class NotifiedPod(WatchedPod, frozen=True, kw_only=True):
    """A Pod that asks for notices.

    Attributes:
        version: the resource version. Each write requires it, so that no Pod is told or evicted twice.
        told: the time in the annotation, or None if it is missing, empty, or malformed.
        annotated: whether the annotation isn't empty.
        evict: whether the Pod asks to be evicted.
        grace: the seconds that the Pod has to stop by default.
    """

    version: str
    told: datetime | None
    annotated: bool
    evict: bool
    grace: int


def read_node(raw: bytes | msgspec.Raw, providers: Collection[Provider]) -> NotifiedNode | None:
    """Return a Node with its current notice, or None if it has none."""
    node = msgspec.json.decode(raw, type=SignalNode)
    notice = notice_of(node, providers, utc_now())
    return NotifiedNode(node.metadata.name, node.metadata.uid, notice) if notice is not None else None


def read_pod(_: ListedMetadata, raw: msgspec.Raw) -> NotifiedPod:
    """Return the parts of a Pod that a notice depends on."""
    pod = decode_pod(raw)
    metadata, grace, owner = pod.metadata, pod.spec.terminationGracePeriodSeconds, pod.metadata.controller
    stays = owner is not None and owner.group_kind in _BOUND_TO_NODES
    annotation = (metadata.annotations or {}).get(RECLAIM_AT, "")
    return NotifiedPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resourceVersion,
        created=metadata.creationTimestamp,
        node=pod.spec.nodeName or "",
        told=parse_time(annotation),
        annotated=bool(annotation),
        evict=(metadata.labels or {}).get(ON_RECLAIM) == EVICT and not stays,
        grace=DEFAULT_GRACE_SECONDS if grace is None else grace,
        alive=pod.alive,
    )


def nodes_with_notices(providers: Collection[Provider]) -> WatchedResource[NotifiedNode | None]:
    """Return the source of the Nodes with a notice."""
    return WatchedResource(resource="nodes", read=lambda _, raw: read_node(raw, providers))


PODS_TO_NOTIFY: Final = WatchedResource(resource="pods", read=read_pod, labels=f"{ON_RECLAIM} in ({INFORM},{EVICT})")
"""The source of the Pods that ask for notices. The API server sends no other Pods."""
