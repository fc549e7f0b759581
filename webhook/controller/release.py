"""Remove the scheduling gate of on-demand floors from waiting Pods, for a cluster without a leader."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.floor import FLOOR_GATE
from webhook.cluster.api import ApiError
from webhook.cluster.source import WatchedResource
from webhook.controller.pods import read_pod

if TYPE_CHECKING:
    from webhook.cluster.api import Api

_SECONDS: Final = 30.0
"""The timeout of each response of the API server. A page of large Pods has 100 MiB."""
_GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""The status codes for a Pod that was deleted, or replaced by one with the same name."""
_PATCH_TYPE: Final = "application/strategic-merge-patch+json"


async def release(api: Api, namespace: str) -> tuple[int, list[str]]:
    """Remove the gate from the Pods of a namespace, or of all namespaces if it is empty.

    Return the number of released Pods, and the reason for each other one. Raise ApiError if Pods can't be listed.
    """
    listing = await WatchedResource(resource="pods", read=read_pod, namespace=namespace).list(api, _SECONDS)
    released, failed = 0, []
    for pod in listing.items.values() if listing is not None else ():
        if pod is None or not pod.gated:
            continue
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        gates = [{"$patch": "delete", "name": FLOOR_GATE}]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}}
        try:
            async with api.send("PATCH", path, patch, _SECONDS, _PATCH_TYPE) as response:
                await response.read()
            released += 1
        except ApiError as error:
            if error.status not in _GONE:
                failed.append(f"{pod.namespace}/{pod.name}: {error}")
    return released, failed
