"""SpotPlacement: invariants for any Pod and any node pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.builders import ALL, CKS, EKS, KARPENTER, POOL_LABEL, cks_pool, expression, other_pool, view_of
from tests.rules.placement import JSON, PREFERRED, SPOT, changes, placed, pod_of, required, rule, violation_of
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.pod_decoding import decode_pod
from webhook.kube.tolerations import HARD_EFFECTS, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod

_keys = st.sampled_from((POOL_LABEL, "example.com/tier", "example.com/team", "kubernetes.io/arch"))
_values = st.sampled_from(("spot", "paid", "p0", "p1", "p2", "amd64"))
_expressions = st.builds(expression, _keys, st.sampled_from(("In", "NotIn")), _values) | st.builds(
    expression, _keys, st.sampled_from(("Exists", "DoesNotExist"))
)
_affinities = st.lists(st.lists(_expressions, max_size=2), min_size=1, max_size=3).map(lambda terms: required(*terms))
_selectors = st.dictionaries(_keys, _values, max_size=1)
_odd_pods = st.builds(
    lambda pod, more: {**pod, "spec": {**pod["spec"], **more}},
    strategies.pods(
        labels={"spotgate.dev/capacity": st.sampled_from(("spot", "spot-preferred", "on-demand", "Spot"))},
        annotations={
            "spotgate.dev/node-pool": st.sampled_from(("p0", "p1", "p9")),
            "spotgate.dev/keep": st.sampled_from(("node-selector", "tolerations", "nothing")),
        },
    ),
    strategies.sometimes(nodeSelector=_selectors, affinity=_affinities, resourceClaims=st.just([{"name": "claim"}])),
)
# Most Pods are ordinary: they request spot, and have at most one constraint.
_ordinary_pods = st.builds(
    lambda labels, gpu, own, tolerations: pod_of(labels=labels, gpu=gpu, tolerations=tolerations, **own),
    st.sampled_from((SPOT, SPOT, PREFERRED, {})),
    st.booleans(),
    st.just({}) | st.builds(dict, nodeSelector=_selectors) | st.builds(dict, affinity=_affinities),
    st.lists(strategies.tolerations(), max_size=1),
)
_pods = _ordinary_pods | _ordinary_pods | _odd_pods
_taints = st.sampled_from(
    (
        "spot=true:NoSchedule",
        "spot:NoSchedule",
        "spot=true:NoExecute",
        "is_gpu=true:NoSchedule",
        "is_gpu=true:PreferNoSchedule",
        "node.coreweave.cloud/evict=true:NoExecute",
        "sunk.coreweave.com/lock:PreferNoSchedule",
        ":NoSchedule",
    )
)
_labels = st.dictionaries(st.sampled_from(("example.com/tier", "example.com/team")), st.sampled_from(("spot", "paid")))
_cks_shape = st.tuples(st.booleans(), st.booleans(), _labels, st.lists(_taints, max_size=2, unique=True))
_other_shape = st.tuples(
    st.sampled_from(
        (CapacityType.SPOT, CapacityType.SPOT, CapacityType.BOTH, CapacityType.ON_DEMAND, CapacityType.UNKNOWN)
    ),
    st.sampled_from((Gpu.YES, Gpu.NO, Gpu.ANY)),
    _labels,
    st.lists(_taints, max_size=2, unique=True),
)


def _cks_pools(shapes: list[Any]) -> tuple[Pool, ...]:
    return tuple(
        cks_pool(f"p{number}", spot=spot, gpu=gpu, labels=labels, taints=tuple(taints))
        for number, (spot, gpu, labels, taints) in enumerate(shapes)
    )


def _other_pools(shapes: list[Any]) -> tuple[Pool, ...]:
    return tuple(
        other_pool(KARPENTER, f"p{number}", capacity=capacity, gpu=gpu, labels=labels, taints=tuple(taints))
        for number, (capacity, gpu, labels, taints) in enumerate(shapes)
    )


def _mixed_pools(shapes: list[tuple[Provider, Any]]) -> tuple[Pool, ...]:
    return tuple(
        other_pool(provider, f"p{number}", capacity=capacity, gpu=gpu, labels=labels, taints=tuple(taints))
        for number, (provider, (capacity, gpu, labels, taints)) in enumerate(shapes)
    )


_several_providers = st.lists(
    st.tuples(st.sampled_from((CKS, EKS, KARPENTER)), _other_shape), min_size=2, max_size=5
).map(_mixed_pools)
_pools = (
    st.lists(_cks_shape, min_size=1, max_size=4).map(_cks_pools)
    | st.lists(_other_shape, min_size=1, max_size=4).map(_other_pools)
    | _several_providers
)
_spot_shown = st.sampled_from(((), (), ("eks",), ("gke",), ("eks", "gke")))
_namespaces: st.SearchStrategy[JSON] = st.sampled_from(({}, SPOT, PREFERRED))


def _target(pod: JSON, view: ClusterView, *, tolerating: bool) -> Any:
    return target_of(_decoded(pod), view.namespaces["team-a"], view, ALL, tolerating=tolerating)


@given(_pods, _pools, _spot_shown, _namespaces, st.booleans())
def test_mutation_only_adds_fields_and_does_not_change_the_target(
    pod: JSON,
    pools: tuple[Pool, ...],
    spot_shown: tuple[str, ...],
    namespace: JSON,
    tolerating: bool,  # noqa: FBT001
) -> None:
    view = view_of(*pools, spot_shown=spot_shown, namespace=namespace)
    before = _target(pod, view, tolerating=tolerating)
    result, patch, _ = placed(pod, view, rule(ALL, toleratingIsTargeting=tolerating))
    after = _target(result, view, tolerating=tolerating)

    assert [operation["op"] for operation in patch] == ["add"] * len(patch)
    if not isinstance(before, Target):
        assert patch == []
        return
    assert (after.because, after.preferred, after.providers, after.pools, after.nodes, after.gpu) == (
        before.because,
        before.preferred,
        before.providers,
        before.pools,
        before.nodes,
        before.gpu,
    )
    spec, given_spec = result["spec"], pod["spec"]
    assert given_spec.get("nodeSelector", {}).items() <= spec.get("nodeSelector", {}).items()
    count = len(given_spec.get("tolerations", ()))
    assert spec.get("tolerations", [])[:count] == given_spec.get("tolerations", [])
    assert {**given_spec, **{key: spec.get(key) for key in ("nodeSelector", "tolerations", "affinity")}} == {
        **spec,
        **{key: spec.get(key) for key in ("nodeSelector", "tolerations", "affinity")},
    }


@given(_pods, _pools, _spot_shown, _namespaces)
def test_a_placed_pod_runs_only_on_its_pools(
    pod: JSON, pools: tuple[Pool, ...], spot_shown: tuple[str, ...], namespace: JSON
) -> None:
    _assert_runs_on_pools(pod, pools, spot_shown, namespace)


_one_of_each = st.tuples(*(st.tuples(st.just(provider), _other_shape) for provider in (EKS, KARPENTER, KARPENTER))).map(
    lambda shapes: _mixed_pools(list(shapes))
)


@given(st.booleans(), st.just({}) | st.builds(dict, affinity=_affinities), _one_of_each)
def test_a_pod_for_several_providers_runs_on_each_of_their_pools_and_nowhere_else(
    gpu: bool,  # noqa: FBT001
    own: JSON,
    pools: tuple[Pool, ...],
) -> None:
    _assert_runs_on_pools(pod_of(labels=SPOT, gpu=gpu, **own), pools, (), {})


def _assert_runs_on_pools(pod: JSON, pools: tuple[Pool, ...], spot_shown: tuple[str, ...], namespace: JSON) -> None:
    """Assert which nodes admit the Pod after mutation, if they have only their known labels."""
    view = view_of(*pools, spot_shown=spot_shown, namespace=namespace)
    before = _target(pod, view, tolerating=False)
    result, _, violations = placed(pod, view, rule(ALL))
    if not isinstance(before, Target) or before.preferred or not before.pools or violations or _keeps(pod):
        return
    own, final = _decoded(pod).spec, _decoded(result).spec
    marks = {label.key for provider in ALL.values() for label in provider.spot_node_labels}
    keys = {key for pool in pools for key in pool.labels} | {"kubernetes.io/arch"} | marks
    for name in set(spot_shown).difference(pool.provider for pool in pools):
        label = ALL[name].spot_node_labels[0]
        lands = any(nodes.pool is None and nodes.provider.name == name for nodes in before.nodes)
        spot = {label.key: label.value, "kubernetes.io/arch": "amd64"}
        assert admits(terms_of(final), spot, keys) is (admits(terms_of(own), spot, keys) if lands else Tristate.NO)
        assert admits(terms_of(final), {"kubernetes.io/arch": "amd64"}, keys) is Tristate.NO
    for pool, labels, is_spot in _nodes(pools):
        ours = is_spot and any(pool is target_pool for target_pool in before.pools)
        admitted = admits(terms_of(final), labels, keys)
        assert admitted is (admits(terms_of(own), labels, keys) if ours else Tristate.NO)
        for taint in pool.taints if ours else ():
            if taint.key and taint.effect in HARD_EFFECTS and taint.key != "is_gpu":
                assert any(tolerates(toleration, taint) for toleration in final.tolerations or ())


def _decoded(pod: JSON) -> Pod:
    return decode_pod(msgspec.json.encode(pod))


def _keeps(pod: JSON) -> bool:
    return "spotgate.dev/keep" in pod["metadata"].get("annotations", {})


def _nodes(pools: tuple[Pool, ...]) -> Iterator[tuple[Pool, JSON, bool]]:
    """Yield each kind of node of each pool, its labels, and whether it is spot."""
    for pool in pools:
        labels = {**pool.labels, "kubernetes.io/arch": "amd64"}
        if pool.spot or pool.capacity is CapacityType.BOTH:
            spot_labels = {label.key: label.value for label in ALL[pool.provider].spot_node_labels}
            yield pool, {**labels, **spot_labels}, True
        if not pool.spot:
            yield pool, labels, False


def test_too_many_combined_terms_are_a_finding_and_not_injected() -> None:
    pools = (other_pool(KARPENTER, "k"), other_pool(EKS, "e"))
    terms = [[expression("topology.kubernetes.io/zone", "In", f"z{number}")] for number in range(33)]
    violation = violation_of(pod_of(labels=SPOT, affinity=required(*terms)), view_of(*pools), providers=ALL)

    assert violation.id == "too-many-terms"
    assert "the 33 terms of its own affinity are too many" in violation.reason
    assert "at most 32 can" in violation.detail
    assert len(changes(pod_of(labels=SPOT, affinity=required(*terms[1:])), *pools, providers=ALL)["affinity"]) == 1
    assert changes(pod_of(labels=PREFERRED, affinity=required(*terms)), *pools, providers=ALL)
