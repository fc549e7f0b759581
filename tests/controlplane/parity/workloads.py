"""Hypothesis strategies for workloads with the Pods of `pods`, and for node pools."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests import strategies
from tests.controlplane.parity.corpus import namespaces
from tests.controlplane.parity.pods import ANNOTATIONS, BREAK_GLASS, LABELS, RESERVED, few, pods
from tests.controlplane.parity.pods import everything as pod_with_everything

JSON = dict[str, Any]

SELECTOR = {"selector": {"matchLabels": {"app": "x"}}}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
}
DISRUPTION = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
SCALE = {"replicas": st.sampled_from((None, 0, 1, 3)), "minReadySeconds": st.sampled_from((0, 5))}

DEPLOYMENT = few(
    {
        **SCALE,
        "paused": st.booleans(),
        "revisionHistoryLimit": st.just(0),
        "strategy": st.sampled_from(
            (
                None,
                {},
                {"type": "Recreate"},
                {"type": "RollingUpdate"},
                {"rollingUpdate": {"maxSurge": 2}},
                {"rollingUpdate": {"maxUnavailable": "50%", "maxSurge": 0}},
            )
        ),
    },
    3,
)
STATEFUL_SET = few(
    {
        **SCALE,
        "podManagementPolicy": st.sampled_from(("", "Parallel")),
        "serviceName": st.just("x"),
        "updateStrategy": st.sampled_from((None, {"type": "OnDelete"}, {"rollingUpdate": {"partition": 1}})),
        "volumeClaimTemplates": st.just([CLAIM]),
    },
    3,
)
ROLLING_DAEMONS = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
DAEMON_SET = few({"updateStrategy": st.sampled_from((None, {"type": "OnDelete"}, ROLLING_DAEMONS))}, 1)
JOB = st.one_of(
    few(
        {
            "backoffLimit": st.sampled_from((0, 4)),
            "completions": st.sampled_from((1, 3)),
            "parallelism": st.sampled_from((0, 2)),
            "podFailurePolicy": st.just(DISRUPTION),
            "suspend": st.booleans(),
            "ttlSecondsAfterFinished": st.just(60),
        },
        3,
    ),
    st.just({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1}),
)
CRON_JOB = few({"concurrencyPolicy": st.sampled_from(("", "Forbid")), "suspend": st.booleans()}, 2)

# The apiVersion, and a strategy for the spec without the template.
BUILT_IN: dict[str, tuple[str, st.SearchStrategy[JSON]]] = {
    "Deployment": ("apps/v1", DEPLOYMENT),
    "ReplicaSet": ("apps/v1", few(SCALE, 2)),
    "StatefulSet": ("apps/v1", STATEFUL_SET),
    "DaemonSet": ("apps/v1", DAEMON_SET),
    "Job": ("batch/v1", JOB),
    "CronJob": ("batch/v1", CRON_JOB),
    "ReplicationController": ("v1", few(SCALE, 2)),
    "PodTemplate": ("v1", st.just({})),
}
INSTANCE_TYPES = ("gd-8xh100ib-i128", "gd-8xl40-i128", "turin-gp", "gb200-4x", "something-new")

# Built once: building a strategy takes longer than drawing from it.
_metadata = few({"labels": few(LABELS, 1), "annotations": few(ANNOTATIONS, 1)}, 1)
_pods = pods()
_pools = strategies.node_pool_named("new")
_fire_drill = few({"annotations": st.just({BREAK_GLASS: "the fire drill"})}, 1)
_instance_types = st.sampled_from(INSTANCE_TYPES)
_nulls = few({name: st.none() for name in ("computeClass", "nodeLabels", "nodeTaints")}, 1)
_reserved: st.SearchStrategy[JSON] = st.sampled_from(({}, {RESERVED: "x"}, {RESERVED: None}))
_rarely = st.integers(0, 4).map(lambda number: number == 0)


@st.composite
def metadata(draw: st.DrawFn) -> JSON:
    """Draw the metadata of a workload."""
    return {"name": "new", "namespace": draw(namespaces), **draw(_metadata)}


@st.composite
def templates(draw: st.DrawFn) -> JSON:
    """Draw a pod template that SELECTOR selects."""
    pod = draw(_pods)
    labels = {**pod["metadata"]["labels"], "app": "x"}
    return {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}


@st.composite
def built_in_workloads(draw: st.DrawFn, kinds: tuple[str, ...] = (*["Deployment"] * 8, *BUILT_IN)) -> JSON:
    """Draw a workload of one of these kinds."""
    kind = draw(st.sampled_from(kinds))
    template, spec = draw(templates()), draw(BUILT_IN[kind][1])
    if kind == "CronJob":
        spec["jobTemplate"] = {"spec": draw(JOB)}
    return workload(kind, draw(metadata()), template, spec)


def workload(kind: str, about: JSON, template: JSON, spec: JSON) -> JSON:
    """Return a workload of this kind, with the template in its spec."""
    thing = {"apiVersion": BUILT_IN[kind][0], "kind": kind, "metadata": about}
    if kind == "PodTemplate":
        return {**thing, "template": template}
    if kind in {"Job", "CronJob"}:
        template["spec"]["restartPolicy"] = "Never"
    if kind == "CronJob":
        job = {"spec": {**spec["jobTemplate"]["spec"], "template": template}}
        return {**thing, "spec": {"schedule": "0 4 * * *", **spec, "jobTemplate": job}}
    selector = {} if kind in {"Job", "ReplicationController"} else SELECTOR
    return {**thing, "spec": {**selector, "template": template, **spec}}


def everything(kind: str) -> JSON:
    """Return a workload of this kind with all fields that have defaults."""
    pod = pod_with_everything()
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod["spec"]}
    spec: dict[str, JSON] = {
        "CronJob": {"jobTemplate": {"spec": {"podFailurePolicy": DISRUPTION}}},
        "Job": {"podFailurePolicy": DISRUPTION},
        "StatefulSet": {"volumeClaimTemplates": [CLAIM]},
    }
    return workload(kind, pod["metadata"], template, spec.get(kind, {}))


def _ray_cluster(template: JSON) -> JSON:
    return {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [{"groupName": "w", "template": template}]}


def _pytorch_job(template: JSON) -> JSON:
    return {"pytorchReplicaSpecs": {"Worker": {"template": template}}}


def _job_set(template: JSON) -> JSON:
    return {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}]}


CUSTOM = {
    ("ray.io/v1", "RayCluster"): _ray_cluster,
    ("kubeflow.org/v1", "PyTorchJob"): _pytorch_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _job_set,
}


@st.composite
def custom_workloads(draw: st.DrawFn) -> JSON:
    """Draw a custom resource with a pod template, which gets no defaults."""
    api_version, kind = draw(st.sampled_from(sorted(CUSTOM)))
    spec = CUSTOM[api_version, kind](draw(templates()))
    return {"apiVersion": api_version, "kind": kind, "metadata": draw(metadata()), "spec": spec}


@st.composite
def node_pools(draw: st.DrawFn) -> JSON:
    """Draw a node pool; a few have a wrong type in the spec, which the API server accepts."""
    pool = draw(_pools)
    spec = {**pool["spec"], "instanceType": draw(_instance_types), **draw(_nulls)}
    if reserved := draw(_reserved):
        spec["nodeLabels"] = {**(spec.get("nodeLabels") or {}), **reserved}
    if draw(_rarely):
        spec = draw(strategies.corrupted(st.just(spec)))
    return {**pool, "metadata": {"name": "new", **draw(_metadata), **draw(_fire_drill)}, "spec": spec}
