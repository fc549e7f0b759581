"""What kind of work a Pod does, as far as it matters for being stopped: its workload class.

The label says it. Without one it is told by who owns the Pod, whether it requests GPUs, and whether it listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.kube.containers import declares_port

if TYPE_CHECKING:
    from webhook.globs import Globs
    from webhook.kube.pod import Pod

CLASS_LABEL: Final = "spotgate.dev/workload-class"

STATELESS: Final = "stateless"
QUEUE_WORKER: Final = "queue-worker"
CHECKPOINTING: Final = "checkpointing"
BATCH: Final = "batch"


def derive_class(pod: Pod, training_operators: Globs, *, gpu: bool) -> tuple[str, str]:
    """The class of a Pod that does not name one, and why, as a phrase for people.

    Args:
        pod: the Pod, with its owner.
        training_operators: owners that train where there are GPUs, as ``Kind.group``.
        gpu: it requests GPUs.
    """
    owner = pod.controller
    if owner is None:
        return STATELESS, "no controller owns it"
    trains = owner.kind == "Job" or training_operators.match(owner.group_kind)
    if gpu and trains:
        return CHECKPOINTING, f"a {owner.kind} owns it, and it requests GPUs"
    if owner.kind == "Job":
        return BATCH, "a Job owns it, and it requests no GPUs"
    if owner.kind == "ReplicaSet" and not declares_port(pod):
        return QUEUE_WORKER, "a ReplicaSet owns it, and no container declares a port"
    return STATELESS, "nothing says otherwise"
