"""Write the status of Pods as a kubelet does that stops them; controllers judge by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.runs.watching import SeenPod

SIGTERM, SIGKILL = 143, 137
"""What a container exits with that one of these signals ends: 128 and its number."""

_DISRUPTED: Final = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
_NOT_READY: Final = {"type": "Ready", "status": "False", "reason": "NodeShutdown"}
SHUTTING_DOWN: Final = {"status": {"conditions": [_DISRUPTED, _NOT_READY]}}


def killed(pod: SeenPod, code: int | None) -> JSON:
    """Return the change of a Pod whose containers have exited with this code, None if it is unknown."""
    failed = {"phase": "Failed", "reason": "Terminated", "message": "the Node was reclaimed"}
    status: JSON = {**failed, "conditions": [_DISRUPTED, _NOT_READY]}
    if code is not None:
        ended = {"ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}
        images = ((each.name, each.image) for each in pod.spec.containers)
        status["containerStatuses"] = [{"name": name, "image": image, "imageID": "", **ended} for name, image in images]
    return {"status": status}
