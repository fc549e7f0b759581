"""Invariants of the shipped policies for any Pod and any node pools, in both phases of admission."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.builders import Admission, answered, cluster, defaulted, review
from tests.engine import scheduler
from webhook.kube.hooks import hook_sleeps
from webhook.kube.pod_decoding import decode_pod
from webhook.kube.tolerations import any_covers
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]

CAPACITY = "spotgate.dev/capacity"
SPOT = {CAPACITY: "spot"}
SCHEDULING = ("/spec/tolerations", "/spec/nodeSelector", "/spec/affinity")
capacities = st.sampled_from(("spot", "spot-preferred", "on-demand", "Spot"))
namespaces: st.SearchStrategy[JSON] = st.sampled_from(({}, {}, SPOT, {CAPACITY: "spot-preferred"}))

_odd = strategies.pods(
    labels={
        CAPACITY: capacities,
        "spotgate.dev/workload-class": st.sampled_from(("stateless", "batch", "checkpointing", "odd")),
        "qos.coreweave.cloud/interruptible": st.just("true"),
    },
    annotations={
        "spotgate.dev/node-pool": st.sampled_from((*strategies.POOL_NAMES, "p9")),
        "spotgate.dev/keep": st.sampled_from(("grace-period", "pre-stop, node-selector", "tolerations", "nothing")),
        "kubernetes.io/config.mirror": st.just("x"),
    },
)
# Most Pods are ordinary: they request spot, and have one or two constraints.
_ordinary = st.builds(
    lambda labels, annotations, container, tolerations: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "labels": labels, "annotations": annotations},
        "spec": {"containers": [container], "tolerations": tolerations},
    },
    st.sampled_from((SPOT, SPOT, {CAPACITY: "spot-preferred"}, {})),
    st.sampled_from(({}, {}, {"spotgate.dev/node-pool": "p1"})),
    strategies.container("app"),
    st.lists(strategies.tolerations(), max_size=1),
)


def placed(pods: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    return st.builds(
        lambda pod, placement: defaulted({**pod, "spec": {**pod["spec"], **placement}}),
        pods,
        st.one_of(st.just({}), strategies.placements()),
    )


asking_pods = placed(_ordinary)
pods = placed(st.one_of(_ordinary, _odd))
clusters = strategies.node_pools()


def asks_for(pod: JSON, namespace: JSON) -> str:
    """Return the spot capacity that the Pod or its namespace requests; empty if there is none, or the Pod is exempt."""
    metadata = pod["metadata"]
    untouchable = pod["spec"]["schedulerName"] != "default-scheduler" or any(
        owner["kind"] == "DaemonSet" for owner in metadata.get("ownerReferences") or ()
    )
    asked = (metadata.get("labels") or {}).get(CAPACITY, namespace.get(CAPACITY))
    return asked if not untouchable and asked in {"spot", "spot-preferred"} else ""


@given(pods, clusters, namespaces)
def test_M1_M3_a_patch_applies_and_is_complete(pod: JSON, pools: list[JSON], namespace: JSON) -> None:
    admission = Admission.of(pod, pools, namespace)
    decode_pod(json.dumps(admission.after).encode())

    assert Admission.of(admission.after, pools, namespace).patch == []


@given(pods, clusters, namespaces)
def test_mutation_changes_no_user_value_except_a_default_grace_period(
    pod: JSON, pools: list[JSON], namespace: JSON
) -> None:
    admission = Admission.of(pod, pools, namespace)
    before, after = pod["spec"]["terminationGracePeriodSeconds"], admission.grace

    assert after == before or (before == 30 and 30 <= after <= 270)
    with_grace = {**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": after}}
    assert not list(lost(with_grace, admission.after))


def lost(before: Any, later: Any, path: str = "") -> Iterator[str]:
    """Yield the values that ``later`` lost. Its maps may gain members, and its lists may gain items at the end."""
    if isinstance(before, dict) and isinstance(later, dict):
        for key, value in before.items():
            yield from lost(value, later.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(later, list) and len(before) <= len(later):
        for number, value in enumerate(before):
            yield from lost(value, later[number], f"{path}[{number}]")
    elif before != later:
        yield f"{path}: {before} is {later}"


@given(pods, clusters, namespaces)
def test_an_injected_sleep_leaves_time_to_shut_down(pod: JSON, pools: list[JSON], namespace: JSON) -> None:
    admission = Admission.of(pod, pools, namespace)
    own = {sleep.field: sleep.seconds for sleep in hook_sleeps(decode_pod(json.dumps(pod).encode()))}
    for sleep in hook_sleeps(decode_pod(json.dumps(admission.after).encode())):
        if sleep.field not in own:
            assert 0 < sleep.seconds < admission.grace
            assert sleep.field.startswith("spec.containers[")
        elif sleep.seconds <= pod["spec"]["terminationGracePeriodSeconds"]:
            assert sleep.seconds <= admission.grace  # otherwise the API server would reject the Pod


@given(pods, clusters, namespaces)
def test_injected_tolerations_are_narrow_necessary_and_allowed(pod: JSON, pools: list[JSON], namespace: JSON) -> None:
    admission = Admission.of(pod, pools, namespace)
    tolerations = decode_pod(json.dumps(admission.after).encode()).spec.tolerations or []
    for number, added in enumerate(tolerations):
        if number < len(pod["spec"]["tolerations"]):
            continue
        assert added.key not in {"", *strategies.FORBIDDEN}
        assert added.effect
        assert not any_covers(tolerations[:number], added)
        assert scheduler.wants_gpus(pod) or added.key not in {"is_gpu", "nvidia.com/gpu"}


@given(pods, clusters, namespaces)
def test_an_on_demand_pod_is_not_changed(pod: JSON, pools: list[JSON], namespace: JSON) -> None:
    metadata = {**pod["metadata"], "labels": {CAPACITY: "on-demand"}}

    assert Admission.of({**pod, "metadata": metadata}, pools, namespace).patch == []


@given(pods, clusters)
def test_a_pod_that_does_not_request_spot_is_not_changed(pod: JSON, pools: list[JSON]) -> None:
    spec = {key: value for key, value in pod["spec"].items() if key not in {"nodeSelector", "affinity"}}

    assert Admission.of({**pod, "metadata": {"name": "pod"}, "spec": spec}, pools, {}).patch == []


@given(pods, clusters, namespaces, st.sampled_from(("bound", "daemon", "slurm")))
def test_a_pod_placed_by_others_is_not_changed(pod: JSON, pools: list[JSON], namespace: JSON, why: str) -> None:
    metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
    if why == "bound":
        spec["nodeName"] = "g8c41"
    elif why == "daemon":
        metadata["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "controller": True}]
    else:
        spec["schedulerName"] = "tenant-slurm-slurm-scheduler"
    admission = Admission.of({**pod, "metadata": metadata, "spec": spec}, pools, namespace)

    assert admission.patch == []
    assert why == "bound" or not admission.findings  # a manually bound Pod gets a finding


@settings(
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)  # most Pods fit no pool of a random cluster
@given(asking_pods, strategies.node_pools(least=2), namespaces)
def test_a_placed_pod_can_run_only_on_spot_pools(pod: JSON, pools: list[JSON], namespace: JSON) -> None:
    admission = Admission.of(pod, pools, namespace)
    scheduled = any(operation["path"].startswith(SCHEDULING) for operation in admission.patch)
    assume((scheduled or asks_for(pod, namespace)) and not admission.findings)

    assert any(
        scheduler.can_run_on(admission.after, pool, undeclared=True) for pool in pools if scheduler.is_spot(pool)
    )
    if asks_for(pod, namespace) != "spot-preferred":
        assert not any(
            scheduler.can_run_on(admission.after, pool, undeclared=False)
            for pool in pools
            if not scheduler.is_spot(pool)
        )


@given(st.booleans(), clusters, st.sampled_from(("spot", "spot-preferred")))
def test_a_pod_without_constraints_is_placed_on_all_suitable_spot_pools(
    gpu: bool,  # noqa: FBT001
    pools: list[JSON],
    capacity: str,
) -> None:
    container = {"name": "app", "resources": {"limits": {"nvidia.com/gpu": "1"} if gpu else {}}}
    pod = {"metadata": {"name": "pod", "labels": {CAPACITY: capacity}}, "spec": {"containers": [container]}}
    closed = strategies.FORBIDDEN if gpu else (*strategies.FORBIDDEN, "nvidia.com/gpu")
    fit = [
        pool
        for pool in pools
        if scheduler.is_spot(pool)
        and scheduler.may_have_nodes(pool)
        and scheduler.has_gpus(pool) == gpu
        and not any(
            taint["key"] in closed and taint["effect"] != "PreferNoSchedule"
            for taint in pool["spec"].get("nodeTaints", ())
        )
    ]
    admission = Admission.of(defaulted(pod), pools, {})

    assert bool(admission.findings) == (not fit)
    if fit:
        admitting = [pool for pool in pools if scheduler.can_run_on(admission.after, pool, undeclared=False)]
        assert admitting == fit or (capacity == "spot-preferred" and all(pool in admitting for pool in fit))


@given(pods, clusters, namespaces, st.sampled_from(Phase))
def test_equal_reviews_get_identical_answers(pod: JSON, pools: list[JSON], namespace: JSON, phase: Phase) -> None:
    body = review(pod)

    assert answered(body, phase, cluster(pools, namespace)) == answered(body, phase, cluster(pools, namespace))
