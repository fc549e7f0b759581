"""How well other pools cover a spot pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import ALL, pool_of
from tests.rules.conftest import shipped_provider
from webhook.capacity.placement.fallback import Coverage, FallbackNeed, Fallbacks, LostCoverage
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint

if TYPE_CHECKING:
    from webhook.capacity.providers.schema import RequireName

REQUIRES: tuple[RequireName, ...] = ("any", "standard", "gpu", "same-type")


def gpu_pool(name: str, capacity: CapacityType = CapacityType.ON_DEMAND, **fields: Any) -> Pool:
    """Return a Karpenter pool with one node of type p5, unless the fields override it."""
    usual = {"provider": "karpenter", "gpu": Gpu.YES, "instance_type": "p5", "desired": 1}
    return pool_of(name, **{**usual, "capacity": capacity, **fields})


@pytest.mark.parametrize(
    ("spot", "fallback", "why"),
    [
        pytest.param("p5", "p5", "", id="the same type"),
        pytest.param("p4d, p5", "p4d, p5", "", id="the same types"),
        pytest.param("p4d, p5", "p4d, p5, p5e", "", id="all of its types and more"),
        pytest.param("p4d, p5", "p5", "its instance type is p5, not p4d, p5", id="only some of its types"),
        pytest.param("p5", "p5e", "its instance type is p5e, not p5", id="a type that contains its type's name"),
        pytest.param("p5", "", "its instance type is not known, not p5", id="an unknown type"),
        pytest.param("", "", "its instance type is not known, not a known one", id="both types unknown"),
    ],
)
def test_a_same_type_fallback_has_all_types_of_the_spot_pool(spot: str, fallback: str, why: str) -> None:
    fallbacks = Fallbacks("same-type", {}, ALL)
    ours, theirs = gpu_pool("spot", CapacityType.SPOT, instance_type=spot), gpu_pool("od", instance_type=fallback)
    assert fallbacks.why_not(ours, theirs, "same-type") == why


FAMILY, GENERATION = "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-generation"
GPU_NAME, TYPE = "karpenter.k8s.aws/instance-gpu-name", "node.kubernetes.io/instance-type"
CATEGORY = ("karpenter.k8s.aws/instance-category", "In", "p")


def required(name: str, capacity: str, *requirements: tuple[str, ...]) -> Pool:
    """Return a Karpenter NodePool with these requirements: key, operator, values."""
    listed = [{"key": key, "operator": operator, "values": values} for key, operator, *values in requirements]
    listed.append({"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]})
    (reader,) = shipped_provider("karpenter").readers
    return reader.read({"metadata": {"name": name}, "spec": {"template": {"spec": {"requirements": listed}}}})


@pytest.mark.parametrize(
    ("spot", "fallback", "why"),
    [
        pytest.param([(FAMILY, "In", "p5")], [(FAMILY, "In", "p5")], "", id="the same family"),
        pytest.param([(FAMILY, "In", "p5")], [(FAMILY, "In", "p4d", "p5")], "", id="its family and another"),
        pytest.param(
            [(FAMILY, "In", "p4d", "p5")],
            [(FAMILY, "In", "p5")],
            f"its requirement on {FAMILY} is stricter than that of NodePool spot",
            id="one of its families",
        ),
        pytest.param([(GPU_NAME, "In", "h100")], [(GPU_NAME, "In", "h100")], "", id="the same accelerator"),
        pytest.param([(GPU_NAME, "In", "h100")], [(GPU_NAME, "Exists")], "", id="any accelerator"),
        pytest.param(
            [(GPU_NAME, "In", "h100")],
            [(GPU_NAME, "In", "a100")],
            f"its requirement on {GPU_NAME} is stricter than that of NodePool spot",
            id="another accelerator",
        ),
        pytest.param(
            [CATEGORY, (GENERATION, "Gt", "4")], [CATEGORY, (GENERATION, "Gt", "3")], "", id="its generations and more"
        ),
        pytest.param(
            [CATEGORY, (GENERATION, "Gt", "4")],
            [CATEGORY, (GENERATION, "Gt", "5")],
            f"its requirement on {GENERATION} is stricter than that of NodePool spot",
            id="not all of its generations",
        ),
        pytest.param(
            [CATEGORY],
            [CATEGORY, (GENERATION, "NotIn", "3")],
            f"its requirement on {GENERATION} is stricter than that of NodePool spot",
            id="a label that the spot pool doesn't restrict",
        ),
        pytest.param(
            [(FAMILY, "In", "p5")],
            [CATEGORY, (FAMILY, "In", "p5"), ("team", "In", "a")],
            "its requirement on karpenter.k8s.aws/instance-category is stricter than that of NodePool spot",
            id="a redundant label",
        ),
        pytest.param([(FAMILY, "In", "p5")], [(FAMILY, "In", "p5"), ("team", "In", "a")], "", id="an unrelated label"),
        pytest.param(
            [(FAMILY, "In", "p5")],
            [(TYPE, "In", "p5.48xlarge")],
            f"its requirement on {TYPE} is stricter than that of NodePool spot",
            id="a type, and the spot pool has a family",
        ),
    ],
)
def test_a_same_type_fallback_has_no_stricter_requirements_than_the_spot_pool(
    spot: list[tuple[str, ...]], fallback: list[tuple[str, ...]], why: str
) -> None:
    fallbacks = Fallbacks("same-type", {}, {"karpenter": shipped_provider("karpenter")})
    ours, theirs = required("spot", "spot", *spot), required("od", "on-demand", *fallback)
    assert fallbacks.why_not(ours, theirs, "same-type") == why
    assert [lost.spot for lost in fallbacks.lost_coverage([], [ours, theirs])] == ([ours] if why else [])


def test_spot_pools_with_different_machines_are_judged_separately() -> None:
    fallbacks = Fallbacks("same-type", {}, {"karpenter": shipped_provider("karpenter")})
    p5, p4d = required("a", "spot", (FAMILY, "In", "p5")), required("b", "spot", (FAMILY, "In", "p4d"))
    lost_coverage = fallbacks.lost_coverage([], [p5, p4d, required("od", "on-demand", (FAMILY, "In", "p5"))])
    assert [lost.spot for lost in lost_coverage] == [p4d]
    before, after = (required("od", "on-demand", (FAMILY, "In", family)) for family in ("p5", "p4d"))
    assert fallbacks.offer_of(before) != fallbacks.offer_of(after)
    assert fallbacks.demand_of(p5) != fallbacks.demand_of(replace(p4d, name="a"))


@pytest.mark.parametrize(
    ("field", "its", "other", "left"),
    [
        ("cluster", "prod", "test", Coverage.NONE),
        ("provider", "karpenter", "cks", Coverage.NONE),
        ("gpu_type", "l4", "t4", Coverage.NONE),
        ("instance_type", "p5", "p4d", Coverage.NONE),
        ("zones", frozenset("x"), frozenset("y"), Coverage.ELSEWHERE),
    ],
)
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_spot_pools_that_differ_in_one_field_are_judged_separately(
    field: str, its: object, other: object, left: Coverage, names: str
) -> None:
    def pool(name: str, capacity: CapacityType, value: object) -> Pool:
        return gpu_pool(name, capacity, **{"cluster": "prod", field: value})

    covered, uncovered = pool(names[0], CapacityType.SPOT, its), pool(names[1], CapacityType.SPOT, other)
    lost_coverage = Fallbacks("same-type", {}, ALL).lost_coverage(
        [], [covered, uncovered, pool("od", CapacityType.ON_DEMAND, its)]
    )
    assert lost_coverage == [LostCoverage(uncovered, FallbackNeed("same-type"), left)]


unusual = st.one_of(
    st.tuples(st.just("provider"), st.just("cks")),
    st.tuples(st.just("capacity"), st.sampled_from(CapacityType)),
    st.tuples(st.just("gpu"), st.sampled_from(Gpu)),
    st.tuples(st.just("gpu_type"), st.sampled_from(("l4", "t4"))),
    st.tuples(st.just("instance_type"), st.sampled_from(("", "p4d", "p4d, p5"))),
    st.tuples(st.just("desired"), st.sampled_from((0, None))),
    st.tuples(st.just("taints"), st.just((Taint("node.coreweave.cloud/reserved"),))),
    st.tuples(st.just("zones"), st.sampled_from((frozenset("x"), frozenset("y"), frozenset("xy")))),
    st.tuples(st.just("cluster"), st.sampled_from(("prod", "test"))),
    st.tuples(st.just("deleting"), st.just(True)),  # noqa: FBT003 - a value
)
pools = st.builds(
    lambda name, capacity, changes: gpu_pool(name, **{"capacity": capacity, **dict(changes)}),
    st.sampled_from("abcdefgh"),
    st.sampled_from((CapacityType.SPOT, CapacityType.ON_DEMAND)),
    st.lists(unusual, max_size=2),
)
"""Pools that differ in at most two fields, to find results that are cached for the wrong pool."""
clusters = st.lists(pools, max_size=10, unique_by=lambda pool: pool.identity)


@given(before=clusters, after=clusters, require=st.sampled_from(REQUIRES), cks=st.sampled_from(REQUIRES))
def test_lost_coverage_agrees_with_the_coverage_of_each_spot_pool(
    before: list[Pool], after: list[Pool], require: RequireName, cks: RequireName
) -> None:
    fallbacks = Fallbacks(require, {"cks": cks}, ALL)
    earlier = {fallbacks.demand_of(spot): spot for spot in before}
    expected = []
    for spot in sorted((pool for pool in after if fallbacks.demand_of(pool) is not None), key=str):
        same = earlier.get(fallbacks.demand_of(spot))
        for need in fallbacks.needs(spot):
            was = Coverage.HERE if same is None else fallbacks.coverage(same, before, need.require)
            if (cover := fallbacks.coverage(spot, after, need.require)) > was:
                expected.append(LostCoverage(spot, need, cover))
    assert fallbacks.lost_coverage(before, after) == expected


@given(there=clusters.filter(bool), require=st.sampled_from(REQUIRES))
def test_adding_a_pool_never_reduces_the_coverage_of_others(there: list[Pool], require: RequireName) -> None:
    fallbacks, (added, *others) = Fallbacks(require, {}, ALL), there
    worse = fallbacks.lost_coverage(others, there)
    assert all(lost.spot is added for lost in worse)
    assert fallbacks.lost_coverage(others, there, [added]) == worse
