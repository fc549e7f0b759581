"""Identify gangs: sets of Pods that work only together, so that the loss of one Pod stops all of them.

A rehearsal doesn't run the controllers of gangs; it models them. It creates the Jobs or Pods of their manifests, and
when a gang loses a Pod, it recreates all Pods of the gang.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.model.patch import merge_patch
from webhook.rehearse.inputs.resources import BY_NAME, CONTROLLED_HERE, JOB, JSON, NODE, group_kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.kube.pod import Pod

_MARKS: Final = msgspec.yaml.decode(Path(__file__).with_name("gangs.yaml").read_bytes(), type=list[list[str]])
"""Sets of Pod labels or annotations. The values of all keys in a set identify a gang."""

_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_RANK: Final = "batch.kubernetes.io/job-completion-index"


def gang_of(pod: Pod) -> tuple[str, ...] | None:
    """Return the identity of the Pod's gang, or None if the Pod works alone.

    A Pod whose controller the rehearsal doesn't run is a gang with one member.
    """
    namespace, labels = pod.metadata.namespace, pod.labels
    if (group := pod.spec.schedulingGroup) is not None:
        return (namespace, f"PodGroup={group.get('podGroupName', '')}")
    marks = {**pod.annotations, **labels}
    for keys in _MARKS:
        if all(key in marks for key in keys):
            return (namespace, *(f"{key}={marks[key]}" for key in keys))
    if _QUEUE in labels and _RANK in marks and (job := labels.get("batch.kubernetes.io/job-name")):
        return (namespace, f"{_QUEUE}={job}")
    owner = pod.controller
    if owner is None or owner.kind == NODE.kind or BY_NAME.get((owner.group, owner.kind)) in {*CONTROLLED_HERE, JOB}:
        return None
    return (owner.kind, namespace, pod.metadata.name)


def pods_without_controller(value: JSON) -> list[JSON]:
    """Return the Jobs or Pods that the controller of a JobSet or LeaderWorkerSet creates; empty for other kinds."""
    group_kind = group_kind_of(value)
    if group_kind == ("jobset.x-k8s.io", "JobSet"):
        return list(_jobs(value))
    return list(_groups(value)) if group_kind == ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") else []


def _jobs(value: JSON) -> Iterator[JSON]:
    for part in value["spec"].get("replicatedJobs") or ():
        labels = {
            "jobset.sigs.k8s.io/jobset-name": value["metadata"]["name"],
            "jobset.sigs.k8s.io/replicatedjob-name": part["name"],
        }
        # The JobSet controller restarts a gang by recreating all Jobs.
        spec = merge_patch(part["template"]["spec"], {"template": {"metadata": {"labels": labels}}})
        for index in range(part.get("replicas", 1)):
            job = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
            yield _owned(job, value, f"{part['name']}-{index}", labels)


def _groups(value: JSON) -> Iterator[JSON]:
    template = value["spec"]["leaderWorkerTemplate"]
    worker = template["workerTemplate"]
    for group in range(value["spec"].get("replicas", 1)):
        for rank in range(template.get("size", 1)):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": value["metadata"]["name"],
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(rank),
            }
            pod = worker if rank else template.get("leaderTemplate") or worker
            yield _owned(
                {**pod, "apiVersion": "v1", "kind": "Pod"}, value, f"{group}-{rank}" if rank else str(group), labels
            )


def _owned(value: JSON, owner: JSON, name: str, labels: Mapping[str, str]) -> JSON:
    """Return an object as created by the owner's controller. ``name`` is the suffix of its name."""
    metadata = owner["metadata"]
    uid = metadata.get("uid") or "00000000-0000-0000-0000-000000000000"
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": metadata["name"], "uid": uid}
    own = {
        "name": f"{metadata['name']}-{name}",
        "namespace": metadata.get("namespace") or "default",
        "labels": labels,
        "ownerReferences": [{**reference, "controller": True}],
    }
    owned: JSON = merge_patch(value, {"metadata": own})
    return owned
