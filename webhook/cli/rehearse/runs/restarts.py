"""Make the Pods of a gang anew, as its controller would, which is not here."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cli.rehearse.inputs.resources import JOB, POD
from webhook.cluster.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.runs.watching import SeenPod
    from webhook.cluster.api import Api

AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
"""The options of a DELETE that waits for nobody."""

_ANSWER: Final = 60.0
_OWN: Final = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers"})
_OF_A_NODE: Final = frozenset({"nodeName", "ephemeralContainers"})
_OF_A_JOB: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_OURS: Final = "rehearse.spotgate.dev/"
CONTROLLED_HERE: Final = frozenset(
    {("apps", "ReplicaSet"), ("", "ReplicationController"), ("apps", "StatefulSet"), ("apps", "DaemonSet")}
)
"""Group and kind of the owners whose controllers make a lost Pod again; those of Jobs may give up."""


async def originals(api: Api, members: Iterable[SeenPod]) -> list[JSON]:
    """Return the Jobs of these Pods, and the Pods that no controller here makes, as they were first created."""
    paths: dict[str, None] = {}
    for pod in members:
        owner, namespace = pod.controller, pod.metadata.namespace
        if owner is not None and (owner.group, owner.kind) == (JOB.group, JOB.kind):
            paths[f"{JOB.collection('batch/v1', namespace)}/{owner.name}"] = None
        elif owner is None or (owner.group, owner.kind) not in CONTROLLED_HERE:
            paths[pod.path] = None
    return [_as_created(msgspec.json.decode(await api.read(path, _ANSWER))) for path in paths]


async def recreate(api: Api, objects: Iterable[JSON]) -> None:
    """Delete what is left of these objects, and create them. Raise ApiError."""
    for each in objects:
        kind = JOB if each["kind"] == JOB.kind else POD
        collection = kind.collection(each["apiVersion"], each["metadata"]["namespace"])
        try:
            await api.write("DELETE", f"{collection}/{each['metadata']['name']}", AT_ONCE, _ANSWER)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        await api.write("POST", collection, each, _ANSWER)


def _as_created(value: JSON) -> JSON:
    metadata = {key: each for key, each in value["metadata"].items() if key not in _OWN}
    metadata["annotations"] = {
        key: text for key, text in metadata.get("annotations", {}).items() if not key.startswith(_OURS)
    }
    spec = {key: each for key, each in value["spec"].items() if key not in _OF_A_NODE}
    if value["kind"] == JOB.kind:
        spec.pop("selector", None)
        for labels in (metadata.get("labels", {}), spec["template"].get("metadata", {}).get("labels", {})):
            for key in _OF_A_JOB:
                labels.pop(key, None)
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, "spec": spec}
