"""Remove the scheduling gate of on-demand floors from waiting Pods, for a cluster without a leader."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from webhook.base.exits import CannotJudgeError
from webhook.cluster.api import Api, ApiError
from webhook.cluster.source import WatchedResource
from webhook.controller.pods import WITHOUT_GATE, WITHOUT_GATE_TYPE, read_pod

_SECONDS: Final = 30.0
"""The timeout of each response of the API server. A page has at most 16 MiB."""


async def release(api: Api, namespace: str) -> int:
    """Remove the gate from the Pods of a namespace, or of all namespaces if it is empty. Return the number of Pods.

    Raise ApiError if Pods can't be listed. Raise CannotJudgeError, with the reasons, if some can't be released.
    """
    listing = await WatchedResource(resource="pods", read=read_pod, namespace=namespace).list(api, _SECONDS)
    pods = [pod for pod in listing.items.values() if pod is not None and pod.gated] if listing is not None else []
    failed: list[str] = []
    for pod in pods:
        try:
            await api.write("PATCH", pod.path, {"spec": WITHOUT_GATE}, _SECONDS, WITHOUT_GATE_TYPE)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                failed.append(f"spotgate controller: can't release {pod.namespace}/{pod.name}: {error}")
    if failed:
        raise CannotJudgeError("\n".join(failed))
    return len(pods)
