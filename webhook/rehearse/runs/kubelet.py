"""The status of Pods that the kubelet stops, as controllers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.runs.watching import SeenPod

SIGTERM, SIGKILL = 143, 137
"""The exit codes of containers that these signals end: 128 plus the signal number."""

_DISRUPTED: Final = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
_NOT_READY: Final = {"type": "Ready", "status": "False", "reason": "NodeShutdown"}
SHUTTING_DOWN: Final = {"conditions": [_DISRUPTED, _NOT_READY]}


def killed(pod: SeenPod, code: int | None) -> JSON:
    """Return the status of a Pod whose containers exited with this code, or with an unknown code if None."""
    status: JSON = {"phase": "Failed", "reason": "Terminated", "message": "the Node was reclaimed", **SHUTTING_DOWN}
    if code is not None:
        ended = {"ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}
        status["containerStatuses"] = [
            {"name": container.name, "image": container.image, "imageID": "", **ended}
            for container in pod.spec.containers
        ]
    return status
