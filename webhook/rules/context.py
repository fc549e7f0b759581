"""Define the context of a decision: all inputs except the review and the bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from webhook.capacity.view import ClusterView

ASSUMED_VERSION: Final = (1, 34)
"""The default Kubernetes version: the oldest minor version that upstream still supports."""


NOTHING_KNOWN: Final = ClusterView()
"""The view of an unknown cluster."""


class Phase(StrEnum):
    """The two phases of admission."""

    MUTATE = "mutate"
    VALIDATE = "validate"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one decision.

    Attributes:
        phase: mutate yields patches, validate yields findings.
        now: the time for expiry dates, in UTC with a timezone.
        api_server: (major, minor) of the API server.
        oldest_kubelet: (major, minor) of the oldest kubelet.
        view: the known state of the cluster.
        offline: findings on unknown state are ``indeterminate``, not denials or warnings (command line).
        patch_templates: in the mutate phase, also patch the pod templates inside workloads (command line).
        trace: record the steps for ``explain``.
        assigned: the capacity that the controller of the on-demand floor assigns to the Pod: ``on-demand`` or ``spot``;
            empty without an assignment.
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
        """Return the context with this view, and the ``assumed`` Kubernetes version if the view has none."""
        versions = {"api_server": view.api_server or assumed, "oldest_kubelet": view.oldest_kubelet or assumed}
        return msgspec.structs.replace(self, view=view, **versions)


def utc_now() -> datetime:
    """Return the current time, for a `Context`."""
    return datetime.now(tz=UTC)
