"""Placement agrees with a brute-force search over all nodes."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import expression, pod_of, view_of
from tests.capacity.requiring import ALL, ARCH, CAPACITY, CPUS, POOL, karpenter, landing, target
from tests.rules.placement import SPOT, placed, rule
from webhook.capacity.placement.target import Target
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from webhook.kube.pod import PodSpec


# All nodes: every label value in this file, an unused value, and no value.
KEYS = (ARCH, CPUS)
VALUES: tuple[str | None, ...] = (None, *map(str, range(-1, 7)), "a", "b", "z")
NODES = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in product(VALUES, repeat=len(KEYS))
]


@st.composite
def expressions(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(KEYS))
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")))
    if operator in {"Exists", "DoesNotExist"}:
        return expression(key, operator)
    if operator in {"In", "NotIn"}:
        return expression(key, operator, *draw(st.lists(st.sampled_from("01234ab"), min_size=1, max_size=3)))
    return expression(key, operator, draw(st.sampled_from("0123")))


terms = st.lists(expressions(), min_size=1, max_size=3)
selectors = st.none() | st.dictionaries(st.sampled_from(KEYS), st.sampled_from("0123ab"), min_size=1, max_size=1)
affinities = st.none() | st.lists(terms, min_size=1, max_size=2)


def suit(spec: PodSpec, labels: dict[str, str]) -> bool:
    """Return whether a node with these labels suits the Pod, according to `webhook.kube.affinity`."""
    return admits(terms_of(spec), labels, {*KEYS, CAPACITY, POOL}) is Tristate.YES


def nodes_of(requirements: list[dict[str, Any]], **labels: str) -> list[dict[str, str]]:
    required = pod_of(terms=[requirements] if requirements else None).spec
    return [{**node, **labels} for node in NODES if suit(required, node)]


@settings(max_examples=100)
@given(st.lists(expressions(), max_size=3), selectors, affinities)
def test_a_pool_admits_a_pod_exactly_if_one_of_its_nodes_suits_the_pod(
    requirements: list[dict[str, Any]], selector: dict[str, str] | None, own: list[Any] | None
) -> None:
    pod = pod_of(labels=SPOT, selector=selector, terms=own)
    nodes = nodes_of(requirements)
    assert landing(pod, karpenter("a", *requirements)) == ["a"] * any(suit(pod.spec, node) for node in nodes)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((("spot",), ("spot",), ("on-demand",), ("spot", "on-demand"))),
            st.lists(expressions(), max_size=2),
        ),
        min_size=1,
        max_size=3,
    ),
    selectors,
    affinities,
)
def test_a_placed_pod_runs_only_on_spot_nodes_of_its_pools(
    shapes: list[Any], selector: dict[str, str] | None, own: list[Any] | None
) -> None:
    pools = [karpenter(f"p{index}", *required, capacity=capacity) for index, (capacity, required) in enumerate(shapes)]
    pod = msgspec.to_builtins(pod_of(labels=SPOT, selector=selector, terms=own))
    before = target(decode_pod(msgspec.json.encode(pod)), *pools)
    assert isinstance(before, Target)
    result, _, _ = placed(pod, view_of(*pools), rule(ALL))
    if not before.pools:
        assert result == pod
        return
    final = decode_pod(msgspec.json.encode(result)).spec
    for pool, (capacities, requirements) in zip(pools, shapes, strict=True):
        for capacity in capacities:
            nodes = nodes_of(requirements, **{POOL: pool.name, CAPACITY: capacity})
            runs = any(suit(final, node) for node in nodes)
            assert runs is (capacity == "spot" and any(pool is target_pool for target_pool in before.pools))
