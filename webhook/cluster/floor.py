"""Read the facts for the on-demand floor of a Pod: whether the controller runs, and the first ordinal."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from webhook.capacity.placement.floor import FLOOR_ANNOTATION, FLOOR_LEASE
from webhook.cluster.api import Api, ApiError
from webhook.cluster.mirror import Mirror, Pace
from webhook.cluster.source import WatchedResource
from webhook.kube.pod import ApiObject

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from webhook.capacity.view import ClusterView
    from webhook.model.review import Request

FRESH_SECONDS: Final = 10.0
"""Seconds for which the controller counts as running after a renewal of its Lease. It renews the Lease every 2 s."""

_ANNOTATION: Final = FLOOR_ANNOTATION.encode()

log: FilteringBoundLogger = structlog.get_logger()


class FloorFacts:
    """The facts for the on-demand floors of Pods.

    Attributes:
        lease: the mirror of the controller's Lease; its `run` keeps it up to date.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        lease: WatchedResource[dict[str, Any]] = WatchedResource(
            group="coordination.k8s.io",
            resource="leases",
            namespace=namespace,
            fields=f"metadata.name={FLOOR_LEASE}",
            read=lambda _, raw: msgspec.json.decode(raw)["spec"],
        )
        self.lease = Mirror(api, lease, Pace(), lambda: None, self._observe)
        self._renewed = -math.inf

    def _observe(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        """Record a renewal, which is an update of the Lease by the same holder.

        The first observed version doesn't count, because it may be old, and the clocks of hosts differ. The update of a
        new holder doesn't count, because the holder may not assign Pods yet.
        """
        if before and after and before.get("holderIdentity") == after.get("holderIdentity"):
            self._renewed = monotonic()

    async def seen_from(self, view: ClusterView, request: Request, seconds: float) -> ClusterView:
        """Return the view with the facts for the floor of a Pod or a workload. Without a floor, return the same view.

        If the first ordinal can't be read within ``seconds``, it is unknown.
        """
        if _ANNOTATION not in bytes(request.object):
            return view
        view = msgspec.structs.replace(view, floor_controller=monotonic() - self._renewed < FRESH_SECONDS)
        if request.path != "pods" or request.operation != "CREATE":
            return view
        starts = {}
        try:
            owner = msgspec.json.decode(request.object, type=ApiObject).controller
            if owner is not None and owner.group_kind == "StatefulSet.apps":
                path = f"/apis/apps/v1/namespaces/{request.namespace}/statefulsets/{owner.name}"
                stored = await self._api.find(path, dict, seconds)
                if stored is not None:
                    starts[f"{request.namespace}/{owner.name}"] = stored["spec"].get("ordinals", {}).get("start", 0)
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("can't read the first ordinal of a StatefulSet", problem=str(error))
        return msgspec.structs.replace(view, ordinal_starts=starts)
