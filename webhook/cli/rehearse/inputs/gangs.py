"""Gangs, whose Pods work only together: one loss is the whole gang's.

Their controllers are not here. What they do is modelled: from manifests their Jobs or Pods are made, and when a Pod
of a gang is lost, all of its Pods are made anew.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.bundle import Bundle
    from webhook.cli.rehearse.inputs.resources import JSON

_MARKS: Final = (
    ("jobset.sigs.k8s.io/jobset-name",),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ("kueue.x-k8s.io/pod-group-name",),
    ("scheduling.x-k8s.io/pod-group",),
    ("pod-group.scheduling.sigs.k8s.io",),
    ("scheduling.k8s.io/group-name",),  # Volcano's, as an annotation; so are the next three
    ("scheduling.volcano.sh/group-name",),
    ("pod-group-name",),
    ("yunikorn.apache.org/task-group-name",),
    ("training.kubeflow.org/job-name",),
)
"""Labels or annotations of Pods that tell gangs apart, all of a set."""

_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_RANK: Final = "batch.kubernetes.io/job-completion-index"


def gang_of(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what the Pods of one gang have in common. Return None if the Pod works alone."""
    marks = {**annotations, **labels}
    for keys in _MARKS:
        if all(key in marks for key in keys):
            return (namespace, *(f"{key}={marks[key]}" for key in keys))
    if _QUEUE in labels and _RANK in marks and (job := labels.get("batch.kubernetes.io/job-name")):
        return (namespace, f"{_QUEUE}={job}")
    return None


def pods_without_controller(value: JSON, bundle: Bundle) -> tuple[list[JSON], str]:
    """Return the Jobs or Pods that a workload has whose controller is not here, or else a sentence that says so."""
    kind = value["kind"]
    group = value["apiVersion"].rpartition("/")[0]
    described = any((each.group, each.kind) == (group, kind) for each in bundle.index.workloads.values())
    if not described and not _has_template(value):
        return [], ""
    if (group, kind) == ("jobset.x-k8s.io", "JobSet"):
        return list(_jobs(value)), ""
    if (group, kind) == ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"):
        return list(_groups(value)), ""
    name = value["metadata"].get("name", "")
    return [], f"{kind} {name}: its controller is not here, so its Pods are left out; pass them as a cluster has them"


def _has_template(value: JSON) -> bool:
    """Return whether an object has a pod template where most workloads have it."""
    found: object = value
    for key in ("spec", "template", "spec", "containers"):
        found = found.get(key) if isinstance(found, dict) else None
    return bool(found)


def _jobs(value: JSON) -> Iterator[JSON]:
    metadata = value["metadata"]
    namespace = metadata.get("namespace") or "default"
    for part in value["spec"].get("replicatedJobs") or ():
        for index in range(part.get("replicas", 1)):
            spec = copy.deepcopy(part["template"]["spec"])
            labels = {
                "jobset.sigs.k8s.io/jobset-name": metadata["name"],
                "jobset.sigs.k8s.io/replicatedjob-name": part["name"],
            }
            _label(spec["template"], labels)
            # Its restarts are the JobSet's, which makes all Jobs anew.
            yield {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": f"{metadata['name']}-{part['name']}-{index}",
                    "namespace": namespace,
                    "labels": labels,
                    "ownerReferences": [_owner(value)],
                },
                "spec": spec,
            }


def _groups(value: JSON) -> Iterator[JSON]:
    metadata, spec = value["metadata"], value["spec"]
    namespace = metadata.get("namespace") or "default"
    template = spec["leaderWorkerTemplate"]
    worker = template["workerTemplate"]
    for group in range(spec.get("replicas", 1)):
        for rank in range(template.get("size", 1)):
            pod = copy.deepcopy(worker if rank else template.get("leaderTemplate") or worker)
            _label(
                pod,
                {
                    "leaderworkerset.sigs.k8s.io/name": metadata["name"],
                    "leaderworkerset.sigs.k8s.io/group-index": str(group),
                    "leaderworkerset.sigs.k8s.io/worker-index": str(rank),
                },
            )
            name = f"{metadata['name']}-{group}-{rank}" if rank else f"{metadata['name']}-{group}"
            made = {**pod["metadata"], "name": name, "namespace": namespace, "ownerReferences": [_owner(value)]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": pod["spec"]}


def _label(template: JSON, labels: Mapping[str, str]) -> None:
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}


def _owner(value: JSON) -> JSON:
    metadata = value["metadata"]
    return {
        "apiVersion": value["apiVersion"],
        "kind": value["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid") or "00000000-0000-0000-0000-000000000000",
        "controller": True,
    }
