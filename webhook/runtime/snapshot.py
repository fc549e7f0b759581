"""Define what spotgate evaluates requests with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterState
    from webhook.engine.bundle import Bundle


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The policies and the cluster state that spotgate evaluates requests with.

    A snapshot is always replaced as a whole. A request uses the same snapshot from start to end.
    """

    bundle: Bundle
    state: ClusterState
