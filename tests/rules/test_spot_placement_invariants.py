"""SpotPlacement: invariants for any Pod and any node pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.builders import ALL, CKS, EKS, KARPENTER, POOL_LABEL, cks_pool, expression, other_pool, view_of
from tests.rules.placement import JSON, PREFERRED, SPOT, changes, placed, pod_of, required, rule, violation_of
from webhook.capacity.placement.index import demands_spot
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.pool import CapacityType, Gpu, Taint
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.pod_decoding import decode_pod
from webhook.kube.tolerations import HARD_EFFECTS, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod

ARCH, OS = "kubernetes.io/arch", "kubernetes.io/os"
_keys = st.sampled_from((POOL_LABEL, "karpenter.sh/capacity-type", "example.com/tier", "example.com/team", ARCH))
_values = st.sampled_from(("spot", "paid", "p0", "p1", "p2", "amd64", "arm64"))
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
    _labels | _labels.map(lambda labels: {**labels, ARCH: "arm64"}),
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
    assert isinstance(after, Target)
    for field in ("preferred", "by_preference", "providers", "pools", "nodes", "gpu", "tolerations"):
        assert getattr(after, field) == getattr(before, field), field
    spec, given_spec = result["spec"], pod["spec"]
    assert given_spec.get("nodeSelector", {}).items() <= spec.get("nodeSelector", {}).items()
    count = len(given_spec.get("tolerations", ()))
    assert spec.get("tolerations", [])[:count] == given_spec.get("tolerations", [])
    assert {**given_spec, **{key: spec.get(key) for key in ("nodeSelector", "tolerations", "affinity")}} == {
        **spec,
        **{key: spec.get(key) for key in ("nodeSelector", "tolerations", "affinity")},
    }


@given(_pods, _pools, _spot_shown, _namespaces)
def test_a_placed_pod_runs_on_the_spot_nodes_that_can_run_it_and_on_no_other(
    pod: JSON, pools: tuple[Pool, ...], spot_shown: tuple[str, ...], namespace: JSON
) -> None:
    _assert_runs_on_target(pod, pools, spot_shown, namespace)


_one_of_each = st.tuples(*(st.tuples(st.just(provider), _other_shape) for provider in (EKS, KARPENTER, KARPENTER))).map(
    lambda shapes: _mixed_pools(list(shapes))
)


@given(st.booleans(), st.just({}) | st.builds(dict, affinity=_affinities), _one_of_each)
def test_a_pod_for_several_providers_runs_on_each_of_their_pools_and_nowhere_else(
    gpu: bool,  # noqa: FBT001
    own: JSON,
    pools: tuple[Pool, ...],
) -> None:
    _assert_runs_on_target(pod_of(labels=SPOT, gpu=gpu, **own), pools, (), {})


class _Machine(NamedTuple):
    """A node with all of its labels and taints, whether its GPUs are enough, and whether it is in the Pod's target."""

    provider: Provider
    labels: JSON
    taints: tuple[Taint, ...]
    spot: bool
    fits: bool = True
    ours: bool = False

    def selected_by(self, pod: Pod) -> bool:
        terms = terms_of(pod.spec)
        return admits(terms, self.labels, {need.key for term in terms for need in term.requirements}) is Tristate.YES

    def runs(self, pod: Pod) -> bool:
        hard = (taint for taint in self.taints if taint.key and taint.effect in HARD_EFFECTS)
        tolerations = pod.spec.tolerations or ()
        tolerated = all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in hard)
        return self.fits and tolerated and self.selected_by(pod)


def _assert_runs_on_target(pod: JSON, pools: tuple[Pool, ...], spot_shown: tuple[str, ...], namespace: JSON) -> None:
    """Assert which nodes can run the Pod after mutation."""
    view = view_of(*pools, spot_shown=spot_shown, namespace=namespace)
    target = _target(pod, view, tolerating=False)
    result, _, violations = placed(pod, view, rule(ALL))
    if not isinstance(target, Target) or not target.nodes or target.by_preference or violations or _keeps(pod):
        return
    own, final = _decoded(pod), _decoded(result)
    usual = {ARCH: "amd64", OS: own.spec.os.name if own.spec.os else "linux"}
    names = set(spot_shown) - {pool.provider for pool in pools}
    for machine in (*_visible(pools, target, usual), *_unseen(names, target)):
        ran, runs = machine.runs(own), machine.runs(final)
        if machine.ours:
            assert runs is machine.selected_by(own)
        elif target.preferred and machine.spot:
            assert runs <= ran
        elif target.preferred:  # It may lose only nodes of a foreign platform.
            assert runs >= ran or not usual.items() <= machine.labels.items()
        elif machine.spot and ran:  # The Pod itself demands spot, and tolerates the taints.
            own_label = all(demands_spot(term, machine.provider) for term in terms_of(own.spec))
            forbidden = any(map(machine.provider.is_forbidden, machine.taints))
            assert runs <= (own_label or forbidden)
        else:
            assert not runs


def _visible(pools: tuple[Pool, ...], target: Target, usual: JSON) -> Iterator[_Machine]:
    """Yield each kind of node of each pool. They have the usual platform, unless the pool says otherwise."""
    for pool in pools:
        provider, fits = ALL[pool.provider], not (target.gpu and pool.gpu is Gpu.NO)
        labels = {**usual, **pool.labels}
        marks = {label.key: label.value for label in provider.spot_node_labels}
        if pool.spot or (pool.capacity is CapacityType.BOTH and marks):
            ours = any(pool is nodes.pool for nodes in target.nodes)
            yield _Machine(provider, {**labels, **marks}, pool.taints, spot=True, fits=fits, ours=ours)
        if not pool.spot:
            yield _Machine(provider, labels, pool.taints, spot=False, fits=fits)


def _unseen(names: set[str], target: Target) -> Iterator[_Machine]:
    """Yield each kind of node of invisible pools of these providers."""
    for provider in map(ALL.__getitem__, names):
        marks = {label.key: label.value for label in provider.spot_node_labels}
        fit = [nodes for nodes in target.nodes if nodes.pool is None and nodes.provider is provider]
        for arch, system in (("amd64", "linux"), ("arm64", "linux"), ("amd64", "windows")):
            ours = any((nodes.only(ARCH), nodes.only(OS)) == (arch, system) for nodes in fit)
            labels = {ARCH: arch, OS: system, provider.pool_name_label: "unseen"}
            yield _Machine(provider, {**labels, **marks}, provider.spot_taints, spot=True, ours=ours)
            yield _Machine(provider, labels, (), spot=False)


def _decoded(pod: JSON) -> Pod:
    return decode_pod(msgspec.json.encode(pod))


def _keeps(pod: JSON) -> bool:
    return "spotgate.dev/keep" in pod["metadata"].get("annotations", {})


def test_too_many_combined_terms_are_a_finding_and_not_injected() -> None:
    pools = (other_pool(KARPENTER, "k"), other_pool(EKS, "e"))
    terms = [[expression("topology.kubernetes.io/zone", "In", f"z{number}")] for number in range(33)]
    violation = violation_of(pod_of(labels=SPOT, affinity=required(*terms)), view_of(*pools), providers=ALL)

    assert violation.id == "too-many-terms"
    assert "its own affinity has 33 terms, too many" in violation.reason
    assert "write at most 32 terms" in violation.fix
    assert len(changes(pod_of(labels=SPOT, affinity=required(*terms[1:])), *pools, providers=ALL)["affinity"]) == 1
    assert changes(pod_of(labels=PREFERRED, affinity=required(*terms)), *pools, providers=ALL)
