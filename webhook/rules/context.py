"""Define the context of a decision: everything that it depends on except the review and the bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from webhook.capacity.view import ClusterView

ASSUMED_VERSION: Final = (1, 34)
"""The Kubernetes version if none is given: the oldest minor version that upstream still supports."""


NOTHING_KNOWN: Final = ClusterView()
"""The view of a cluster of which nothing is known."""


class Phase(StrEnum):
    """The two phases of admission."""

    MUTATE = "mutate"
    VALIDATE = "validate"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the world for one decision.

    Attributes:
        phase: mutate yields patches, validate yields findings.
        now: for expiry dates; aware, UTC.
        api_server: (major, minor) of the API server.
        oldest_kubelet: (major, minor) of the oldest kubelet.
        view: the cluster, as far as it is known.
        offline: findings on unknown state are ``indeterminate``, not denials or warnings (command line).
        patch_templates: in the mutate phase, also patch the pod templates inside workloads (command line).
        trace: keep the steps for ``explain``.
        assigned: where the controller of the on-demand floor assigns the Pod: ``on-demand`` or ``spot``; else empty.
    """

    phase: Phase
    now: datetime
    api_server: tuple[int, int] = ASSUMED_VERSION
    oldest_kubelet: tuple[int, int] = ASSUMED_VERSION
    view: ClusterView = NOTHING_KNOWN
    offline: bool = False
    patch_templates: bool = False
    trace: bool = False
    assigned: str = ""

    def seeing(self, view: ClusterView, assumed: tuple[int, int]) -> Context:
        """Return the context with this view, and the version of Kubernetes that is assumed where it says none."""
        versions = {"api_server": view.api_server or assumed, "oldest_kubelet": view.oldest_kubelet or assumed}
        return msgspec.structs.replace(self, view=view, **versions)


def utc_now() -> datetime:
    """Return the current time, for those who build a `Context`."""
    return datetime.now(tz=UTC)
