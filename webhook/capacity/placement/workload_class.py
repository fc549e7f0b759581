"""Derive the workload class of a Pod, which determines how the Pod should stop.

A label names the class. Without the label, the owner, the GPU requests, and the declared ports determine it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.kube.containers import declares_port

if TYPE_CHECKING:
    from webhook.base.globs import Globs
    from webhook.kube.pod import Pod

CLASS_LABEL: Final = "spotgate.dev/workload-class"

STATELESS: Final = "stateless"
QUEUE_WORKER: Final = "queue-worker"
CHECKPOINTING: Final = "checkpointing"
BATCH: Final = "batch"


def is_queue_worker(pod: Pod) -> bool:
    """Return whether the Pod takes its work from a queue: a ReplicaSet owns it, and no container declares a port."""
    owner = pod.controller
    return owner is not None and owner.kind == "ReplicaSet" and not declares_port(pod)


def derive_class(pod: Pod, training_operators: Globs, *, gpu: bool) -> tuple[str, str]:
    """Return the class of a Pod without a class label, and the reason as a phrase.

    ``training_operators`` match owners as ``Kind.group``.
    """
    owner = pod.controller
    if owner is None:
        return STATELESS, "no controller owns it"
    trains = owner.kind == "Job" or training_operators.match(owner.group_kind)
    if gpu and trains:
        return CHECKPOINTING, f"a {owner.kind} owns it, and it requests GPUs"
    if owner.kind == "Job":
        return BATCH, "a Job owns it, and it requests no GPUs"
    if is_queue_worker(pod):
        return QUEUE_WORKER, "a ReplicaSet owns it, and no container declares a port"
    return STATELESS, "no other class applies"
