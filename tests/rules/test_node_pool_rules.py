"""NodePoolRules against CKS node pools and the policy file itself: what each says, and what no pool may do to it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rules import nodepools
from tests.rules.nodepools import (
    CKS,
    HEALTHY,
    JSON,
    KARPENTER,
    TAINT,
    autoscaled,
    judge,
    pool,
    shipped,
    subject_of,
    told,
)
from webhook.model.decision import Outcome, Trace
from webhook.rules.node_pool_rules.checks import FieldRule

DENY, WARN = Outcome.DENY, Outcome.WARN


def test_coreweaves_own_healthy_pool_is_right() -> None:
    assert judge(CKS, HEALTHY) == []


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(pool(computeClass="Spot", nodeTaints=[TAINT]), id="Spot with a capital"),
        pytest.param(pool(computeClass="default"), id="default class"),
        pytest.param(pool(computeClass=""), id="an empty class is the default"),
        pytest.param(pool(instanceType="gb200-4x"), id="superchips on demand"),
        pytest.param(autoscaled(1, 1, 1), id="all three the same"),
        pytest.param(autoscaled(0, 0, 4), id="autoscaled from zero"),
        pytest.param(autoscaled(None, 3, None), id="autoscaled without bounds"),
        pytest.param(pool(minNodes=5, maxNodes=3, targetNodes=9), id="bounds do not matter without autoscaling"),
        pytest.param(pool(image={"name": "ncore", "releaseTrain": "stable"}), id="a named image"),
        pytest.param(pool(image={"releaseTrain": "latest", "kernel": "6.8"}), id="an image by its train"),
        pytest.param(pool(gpu={"version": "570"}), id="a GPU driver"),
        pytest.param(pool(nodeConfigurationUpdateStrategy={"type": "Always"}), id="update strategy"),
        pytest.param(pool(lifecycle={"scaleDownStrategy": "PreferIdle"}), id="scale-down strategy"),
        pytest.param(pool(somethingNew={"a": [1]}, lifecycle={"new": 1}), id="fields that nobody names"),
        pytest.param(pool(nodeTaints=[], nodeLabels={}, image={}, gpu={"version": "1"}), id="empty ones"),
    ],
)
def test_a_right_pool_has_no_finding(right: JSON) -> None:
    assert judge(CKS, right) == []


@pytest.mark.parametrize(
    "wrong",
    [autoscaled(5, 4, 3), autoscaled(2, 1, 4), pool(instanceType=None), pool(autoscaling=3), pool(computeClass="sopt")],
)
def test_one_mistake_is_one_finding(wrong: JSON) -> None:
    assert len(judge(CKS, wrong)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        autoscaled(0, 9, 4),
        pool(targetNodes="x"),
        pool(computeClass="spot"),
        pool(computeClass="sopt", nodeTaints=[TAINT]),
    ],
)
def test_the_yaml_of_a_fix_can_be_copied(wrong: JSON) -> None:
    (finding,) = judge(CKS, wrong)
    copied = yaml.safe_load(finding.fix.partition(":\n")[2])
    assert judge(CKS, pool(**{**wrong["spec"], **copied["spec"]})) == []


GKE = ("container.cnrm.cloud.google.com", "containernodepools")
ACK = ("eks.services.k8s.aws", "nodegroups")
CAPA = ("infrastructure.cluster.x-k8s.io", "awsmanagedmachinepools")


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        (GKE, {"nodeConfig": {"machineType": "e2-standard-4", "spot": True}, "nodeCount": 1}),
        (ACK, {"capacityType": "SPOT", "instanceTypes": ["m5.xlarge", "m6i.xlarge"], "scalingConfig": {}}),
        (CAPA, {"capacityType": "spot", "instanceType": "m5.xlarge", "scaling": {"minSize": 1}}),
    ],
)
def test_the_taint_to_copy_is_written_as_the_provider_writes_it(resource: tuple[str, str], spec: JSON) -> None:
    (finding,) = judge(resource, {"metadata": {"name": "pool"}, "spec": spec})
    copied = yaml.safe_load(finding.fix.partition(":\n")[2])["spec"]
    mended = {
        **spec,
        **copied,
        **({"nodeConfig": spec["nodeConfig"] | copied["nodeConfig"]} if resource == GKE else {}),
    }
    assert judge(resource, {"metadata": {"name": "pool"}, "spec": mended}) == []


# Updates.


BROKEN = autoscaled(
    5, 4, 3, computeClass="spot", instanceType="gb200-4x", gpu={"version": 570}, image={"name": "a", "kernel": "b"}
)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(BROKEN, id="nothing"),
        pytest.param({**BROKEN, "metadata": {"name": "a", "labels": {"a": "b"}}}, id="labels"),
        pytest.param({**BROKEN, "status": {"currentNodes": 4}}, id="status"),
        pytest.param({**BROKEN, "spec": {**BROKEN["spec"], "nodeLabels": {"a": "b"}}}, id="another field"),
    ],
)
def test_an_update_is_judged_by_what_it_changes(new: JSON) -> None:
    assert len(judge(CKS, BROKEN)) > 4
    assert judge(CKS, new, BROKEN) == []


def test_the_finding_of_an_update_is_at_the_field_that_it_changes() -> None:
    before = autoscaled(0, 4, 4)
    assert told(judge(CKS, autoscaled(0, 4, 3), before)) == [
        (DENY, "spec.maxNodes", "targetNodes (4) is above maxNodes (3)")
    ]
    assert told(judge(CKS, autoscaled(0, 4, 4), pool(minNodes=0, targetNodes=4, maxNodes=4))) == []
    assert told(judge(CKS, autoscaled(5, 6, 6), pool(minNodes=5, targetNodes=4, maxNodes=6))) == []
    assert told(judge(CKS, autoscaled(5, 4, 6), pool(minNodes=5, targetNodes=4, maxNodes=6))) == [
        (DENY, "spec.autoscaling", "targetNodes (4) is below minNodes (5)")
    ]


def test_the_autoscaler_may_size_a_pool_within_its_bounds() -> None:
    for target in range(5):
        assert judge(CKS, autoscaled(0, target, 4), autoscaled(0, 2, 4)) == []


def test_an_update_that_only_changes_a_value_into_its_likeness_is_still_judged() -> None:
    assert told(judge(CKS, pool(targetNodes=True), HEALTHY)) == [
        (DENY, "spec.targetNodes", "spec.targetNodes is a boolean, not an integer")
    ]


def test_an_update_may_mend_a_pool() -> None:
    assert judge(CKS, autoscaled(0, 1, 4), autoscaled(0, 9, 4)) == []
    assert judge(CKS, pool(computeClass="spot", nodeTaints=[TAINT]), pool(computeClass="spot")) == []


def test_deletions_and_scaling_are_not_its_business() -> None:
    trace = Trace()
    for request in (subject_of(CKS, None, BROKEN), subject_of(CKS, {"spec": {}}, {"spec": {"replicas": 1}}, "scale")):
        request.trace = trace
        assert list(shipped().validate(request, nodepools.CONTEXT)) == []
    assert [text for _, _, text in trace.steps] == ["nothing of a pool is written by this request"] * 2


# What is the same for every provider.


@pytest.mark.parametrize(
    ("taint", "said"),
    [
        ({"key": "a", "effect": "NoExec"}, "spec.nodeTaints[1] has effect 'NoExec', not one of"),
        ({"effect": "NoSchedule"}, "spec.nodeTaints[1] has no key and effect."),
        ("a=b:NoSchedule", "spec.nodeTaints[1] "),
    ],
)
def test_what_a_reader_can_not_read_is_said_with_its_place(taint: Any, said: str) -> None:
    (finding,) = judge(CKS, pool(nodeTaints=[TAINT, taint]))
    assert told([finding]) == [(WARN, "spec.nodeTaints[1]", "NodePool example-nodepool can't be read in full")]
    assert said in finding.detail


def test_a_spot_pool_without_a_taint_is_warned_of() -> None:
    (finding,) = judge(CKS, pool(computeClass="spot"))
    assert told([finding]) == [
        (WARN, "spec.nodeTaints", "no taint keeps Pods that did not ask for spot off NodePool example-nodepool")
    ]
    assert finding.detail.startswith("CoreWeave CKS gives it none of its own.")
    assert yaml.safe_load(finding.fix.partition(":\n")[2]) == {"spec": {"nodeTaints": [TAINT]}}


@pytest.mark.parametrize(
    ("taints", "warned"),
    [
        ([TAINT], False),
        ([{**TAINT, "effect": "NoExecute"}], False),
        ([{**TAINT, "effect": "PreferNoSchedule"}], True),
        ([], True),
    ],
)
def test_only_a_taint_that_keeps_pods_off_counts(taints: list[JSON], *, warned: bool) -> None:
    assert bool(judge(CKS, pool(computeClass="spot", nodeTaints=taints))) == warned
    assert judge(CKS, pool(nodeTaints=taints)) == []


def test_an_update_is_told_of_a_missing_taint_where_it_took_it_or_made_the_pool_spot() -> None:
    tainted, untainted = pool(computeClass="spot", nodeTaints=[TAINT]), pool(computeClass="spot")
    assert len(judge(CKS, untainted, tainted)) == 1
    assert len(judge(CKS, untainted, HEALTHY)) == 1
    assert judge(CKS, pool(computeClass="spot", targetNodes=2), untainted) == []


def test_an_instance_type_that_nobody_knows_is_warned_of() -> None:
    (finding,) = judge(CKS, pool(instanceType="turin-gpp"))
    assert told([finding]) == [(WARN, "spec.instanceType", "nobody knows instance type turin-gpp: it is in no list")]
    assert finding.detail.startswith("As spot it counts as GPU and needs an on-demand fallback")
    assert finding.fix.startswith("did you mean `turin-gp`? If it is right, add it to the instanceTypes of")
    for value in (pool(instanceType="${TYPE}"), pool(maxNodes="${TYPE}")):
        assert judge(CKS, value)[-1].fix.startswith("${TYPE} is a placeholder: fill it in first (")


def test_a_placeholder_is_not_known_to_break_a_rule() -> None:
    value = pool(instanceType="${TYPE}", targetNodes=None, targetRacks=1)
    assert {(each.id, each.unknown) for each in judge(CKS, value)} == {("check", True), ("unreadable", True)}


@pytest.mark.parametrize(("machine", "warned"), [({}, False), ({"spotMarketOptions": {}}, True)])
def test_the_type_of_a_template_counts_if_it_is_spot_as_it_may_be_the_control_planes(
    machine: JSON, *, warned: bool
) -> None:
    templates = ("infrastructure.cluster.x-k8s.io", "awsmachinetemplates")
    value = {"metadata": {"name": "a"}, "spec": {"template": {"spec": {"instanceType": "${TYPE}", **machine}}}}
    assert bool(judge(templates, value)) == warned


@pytest.mark.parametrize(("size", "target"), [({}, {"targetRacks": 1}), ({"targetNodes": 4}, {"targetNodes": 4})])
def test_the_fix_for_autoscaled_superchips_always_has_a_size(size: JSON, target: JSON) -> None:
    value = pool(instanceType="gb200-4x", autoscaling=True, minNodes=0, maxNodes=4)
    del value["spec"]["targetNodes"]
    value["spec"] |= size
    fix = next(each.fix for each in judge(CKS, value) if "can't be autoscaled" in each.reason)
    assert yaml.safe_load(fix.partition(":\n")[2]) == {"spec": {"autoscaling": False, **target}}


def test_the_seeds_example_of_a_spot_pool_is_told_its_fields() -> None:
    spec = {"region": "EU-SOUTH-04A", "computeClass": "spot"}
    found = judge(CKS, {"metadata": {"name": "my-spot-pool"}, "spec": spec})
    assert [(each.outcome, each.reason) for each in found] == [
        (DENY, "spec.instanceType is missing"),
        (DENY, "spec.targetNodes is missing"),
        (WARN, "a CKS NodePool has no field spec.region"),
        (WARN, "no taint keeps Pods that did not ask for spot off NodePool my-spot-pool"),
    ]
    copied = yaml.safe_load(found[2].fix.partition(":\n")[2])
    assert copied["metadata"]["name"] == "my-spot-pool"
    assert {each.outcome for each in judge(CKS, copied)} == {WARN}  # it has no taint


# What nobody meant to write.

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def named_fields() -> list[str]:
    """Return the fields that the shipped policy names, of all resources."""
    return sorted({field.query.text for checks in shipped().checks.values() for field in checks.fields})


@st.composite
def odd_pools(draw: st.DrawFn) -> Any:
    """Objects with anything at any of the fields that the policy names, or above one."""
    value: Any = draw(st.fixed_dictionaries({}, optional={"metadata": anything, "status": anything, "spec": anything}))
    for path in draw(st.lists(st.sampled_from(named_fields()), max_size=6)):
        place = value
        *parents, last = path.split(".")
        for parent in parents[: draw(st.integers(0, len(parents)))]:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = draw(anything)
    return value


@given(new=odd_pools(), old=st.none() | odd_pools(), resource=st.sampled_from([CKS, KARPENTER]))
def test_no_pool_breaks_a_rule(new: Any, old: Any, resource: tuple[str, str]) -> None:
    for each in judge(resource, new, old):
        assert each.reason
        assert each.field
        assert each.fix
        assert "\n" not in each.reason
        assert len(each.reason) < 300


ODD = [
    None,
    True,
    5,
    "spot",
    "system",
    [5, {"args": [5], "image": 5, "spec": {"mode": 5, "scaleSetPriority": "spot"}}],
    {"a": 5},
]


@pytest.mark.parametrize("policy", ["node-pool-rules", "karpenter-controller"])
def test_no_type_makes_a_shipped_check_fail(policy: str) -> None:
    for resource, check in ((each, check) for each in shipped(policy).checks.values() for check in each.checks):
        for values in itertools.product(ODD, repeat=len(check.fields)):
            thing: JSON = {}
            for field, value in zip(check.fields, values, strict=True):
                *parents, last = field.text.split(".")
                place = thing
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = value
            found = {each.id for each in resource.judge(thing, None, Trace())}
            assert "check-failed" not in found, (check.part, thing)


@given(value=odd_pools(), resource=st.sampled_from([CKS, KARPENTER]))
def test_what_is_left_as_it_was_is_not_judged(value: Any, resource: tuple[str, str]) -> None:
    assert judge(resource, value, value) == []


@given(least=st.integers(0, 9), target=st.integers(0, 9), most=st.integers(0, 9), autoscaling=st.booleans())
def test_sizes_are_ordered_while_autoscaling(least: int, target: int, most: int, *, autoscaling: bool) -> None:
    found = judge(CKS, pool(autoscaling=autoscaling, minNodes=least, targetNodes=target, maxNodes=most))
    assert bool(found) == (autoscaling and not least <= target <= most)
    assert len(found) <= 1


def test_every_example_of_a_field_is_right() -> None:
    rules = [field for checks in shipped().checks.values() for field in checks.fields]
    assert rules
    for rule in rules:
        if rule.example is not None:
            value: Any = rule.example
            for name in reversed(rule.query.text.split(".")):
                value = {name: value}
            assert list(FieldRule.judge(rule, value, None)) == []
