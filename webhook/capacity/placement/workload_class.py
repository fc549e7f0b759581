"""Derive the workload class of a Pod, which determines how the Pod should stop.

A label names the class. Without the label, the restart policy, the GPU requests, the owner, and the declared ports
determine it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base.globs import Globs
from webhook.kube.containers import declares_port
from webhook.kube.pod import COMPLETING, Pod

if TYPE_CHECKING:
    from collections.abc import Container

CLASS_LABEL: Final = "spotgate.dev/workload-class"

STATELESS: Final = "stateless"
QUEUE_WORKER: Final = "queue-worker"
CHECKPOINTING: Final = "checkpointing"
BATCH: Final = "batch"
CLASSES: Final = (STATELESS, QUEUE_WORKER, CHECKPOINTING, BATCH)
REPEATABLE: Final = frozenset({BATCH, CHECKPOINTING, QUEUE_WORKER})
"""Classes for which a reclaim costs time, but loses no request."""

TRAINING_OPERATORS: Final = Globs(("*Job.kubeflow.org", "Job.batch.volcano.sh"))
"""Owners, as ``Kind.group`` (globs), whose Pods with GPUs are checkpointing, even if they restart."""


def is_queue_worker(pod: Pod) -> bool:
    """Return whether the Pod takes its work from a queue: a ReplicaSet owns it, and no container declares a port."""
    owner = pod.controller
    return owner is not None and owner.kind == "ReplicaSet" and not declares_port(pod)


def class_of(
    pod: Pod, *, gpu: bool, known: Container[str] = CLASSES, training_operators: Globs = TRAINING_OPERATORS
) -> tuple[str, str]:
    """Return the class of a Pod, and the reason as a phrase. The label of the Pod has precedence if it is known.

    ``gpu``: the Pod requests GPUs. ``training_operators`` match owners as ``Kind.group``.
    """
    if (named := pod.labels.get(CLASS_LABEL, "")) in known:
        return named, "its label"
    if (policy := pod.spec.restartPolicy) in COMPLETING:
        because = f"it runs to completion (restartPolicy: {policy})"
        return (CHECKPOINTING, f"{because}, and requests GPUs") if gpu else (BATCH, because)
    owner = pod.controller
    if gpu and owner is not None and training_operators.match(owner.group_kind):
        return CHECKPOINTING, f"a {owner.kind} owns it, and it requests GPUs"
    if is_queue_worker(pod):
        return QUEUE_WORKER, "a ReplicaSet owns it, and no container declares a port"
    return STATELESS, "no other class applies"
