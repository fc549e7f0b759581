"""NodePoolRules policy files: what their settings do, and which mistakes in them are found at load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pages import blocks
from tests.rules.nodepools import CKS, JSON, KARPENTER, TAINT, judge, pool, told
from webhook.engine.bundle import load_bundle
from webhook.model.decision import Finding, Outcome
from webhook.policy.errors import PolicyErrors
from webhook.rules.node_pool_rules.checks import MessageTemplate, on_one_line
from webhook.rules.node_pool_rules.rule import NodePoolRules

PAGE = Path(__file__).parents[2] / "docs" / "policies" / "node-pool-rules.md"
DENY, WARN = Outcome.DENY, Outcome.WARN


POLICY = """\
apiVersion: spotgate.dev/v1
kind: NodePoolRules
metadata: {name: mine}
spec: %s
"""


def rule_of(folder: Path, spec: str = "{}") -> NodePoolRules:
    """Return the rule of a policy file with this spec."""
    (folder / "mine.yaml").write_text(POLICY % spec)
    (policy,) = load_bundle([folder]).policies
    assert isinstance(policy.validator, NodePoolRules)
    return policy.validator


def test_a_policy_that_says_nothing_judges_what_is_the_same_for_every_provider(tmp_path: Path) -> None:
    rule = rule_of(tmp_path)
    (superchip,) = judge(CKS, pool(computeClass="spot", instanceType="gb200-4x", nodeTaints=[TAINT]), rule=rule)
    assert told([superchip]) == [
        (DENY, "spec.computeClass", "NodePool example-nodepool can't be spot: gb200-4x is a superchip")
    ]
    assert superchip.fix == "take another instance type, or make the pool on-demand:\nspec:\n  computeClass: default"
    assert judge(CKS, pool(instanceType="gb200-4x"), rule=rule) == []

    (unreadable,) = judge(CKS, pool(targetNodes="3", computeClass="sopt"), rule=rule)
    assert unreadable.outcome is WARN
    assert unreadable.id == "unreadable"
    assert (
        "spec.computeClass is 'sopt', not one of spot, default; spec.targetNodes is not an integer" in unreadable.detail
    )
    assert (
        judge(CKS, pool(targetNodes="4", computeClass="sopt"), pool(targetNodes="3", computeClass="sopt"), rule) == []
    )


@pytest.mark.parametrize("old", [pool(computeClass="spot", instanceType="gb200-4x", nodeTaints=[TAINT])])
def test_a_superchip_pool_that_is_spot_already_may_be_updated(tmp_path: Path, old: JSON) -> None:
    assert judge(CKS, {**old, "spec": {**old["spec"], "targetNodes": 0}}, old, rule_of(tmp_path)) == []


@pytest.mark.parametrize(
    ("setting", "outcome"), [("deny", DENY), ("warn", WARN), ("audit", Outcome.AUDIT), ("off", None)]
)
def test_each_rule_has_an_enforcement_of_its_own(tmp_path: Path, setting: str, outcome: Outcome | None) -> None:
    names = ("superchipOnSpot", "spotWithoutTaint", "unknownInstanceType", "unreadable")
    rule = rule_of(tmp_path, json.dumps(dict.fromkeys(names, setting)))
    wrong = [
        pool(computeClass="spot", instanceType="gb200-4x", nodeTaints=[TAINT]),
        pool(computeClass="spot"),
        pool(instanceType="turin-gpp"),
        pool(targetNodes="3"),
    ]
    for each in wrong:
        assert [found.outcome for found in judge(CKS, each, rule=rule)] == ([] if outcome is None else [outcome])


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            "{resources: [{group: compute.coreweave.com, resource: nodepool}]}",
            "mine.yaml:4:51: spec.resources[0].resource: the policy never looks at nodepool of compute.coreweave.com, "
            "did you mean `nodepools of compute.coreweave.com`?",
            id="a resource that is not matched",
        ),
        pytest.param(
            "{resources: [{group: apps, resource: deployments}]}",
            "mine.yaml:4:34: spec.resources[0].resource: the policy never looks at deployments of apps",
            id="a resource that is no pool",
        ),
        pytest.param(
            "{resources: [{group: karpenter.sh, resource: nodepools}, {group: karpenter.sh, resource: nodepools}]}",
            "spec.resources[1].resource: nodepools of karpenter.sh is there already: put both into one",
            id="the same twice",
        ),
        pytest.param(
            "{resources: [{group: karpenter.sh, resource: nodepools, checks: [{when: 'a &&', fields: [spec.a], message: x}]}]}",
            "spec.resources[0].checks[0].when: not a JMESPath expression:",
            id="no expression",
        ),
        pytest.param(
            "{resources: [{group: karpenter.sh, resource: nodepools, checks: [{when: upper(a), fields: [spec.a], message: x}]}]}",
            "spec.resources[0].checks[0].when: not a JMESPath expression: there is no function `upper`",
            id="no function",
        ),
        *(
            pytest.param(
                f"{{resources: [{{group: karpenter.sh, resource: nodepools, checks: [{{when: '{when}', fields: [spec.a], message: x}}]}}]}}",
                f"spec.resources[0].checks[0].when: {problem}",
                id=f"{when:.3} many times",
            )
            for when, problem in (
                ("[*]" * 400, "has more than 1,000 characters"),
                ("a.*." * 200 + "a", "not a JMESPath expression: it is nested more than 100 levels deep"),
                ("(" * 450 + "a" + ")" * 450, "not a JMESPath expression: it is nested more than 100 levels deep"),
            )
        ),
        pytest.param(
            "{resources: [{group: karpenter.sh, resource: nodepools, checks: [{when: a, fields: [spec.a], message: 'x ${a'}]}]}",
            "spec.resources[0].checks[0].message: `${` opens an expression that ends at the next `}` and holds no other brace",
            id="an open expression",
        ),
        pytest.param(
            "{resources: [{group: karpenter.sh, resource: nodepools, checks: [{when: a, fields: ['spec.a[0]'], message: x}]}]}",
            "spec.resources[0].checks[0].fields[0]: expected a field path, as spec.targetNodes; got 'spec.a[0]'",
            id="no field path",
        ),
        pytest.param(
            "{resources: [{group: karpenter.sh, resource: nodepools, fields: [{path: spec.a, values: [b]}]}]}",
            "spec.resources[0].fields[0]: `values` are those of a string: write type: string",
            id="values without a type",
        ),
    ],
)
def test_a_mistake_in_the_policy_is_found_at_load(tmp_path: Path, spec: str, problem: str) -> None:
    with pytest.raises(PolicyErrors) as error:
        rule_of(tmp_path, spec)
    assert problem in str(error.value)
    assert f"{tmp_path / 'mine.yaml'}:4:" in str(error.value)


CHECKED = """
  resources:
    - group: karpenter.sh
      resource: nodepools
      fields: [{path: spec.weight, type: integer}]
      checks:
        - {when: lower(spec.weight) == '5', fields: [spec.weight], message: never said}
        - {when: "starts_with(spec.name, 'a')", fields: [spec.name], message: it is}
        - {when: "ends_with(spec.name, 'b')", fields: [spec.name], message: never said either}
"""


def test_a_check_that_fails_on_a_value_is_said_once(tmp_path: Path) -> None:
    rule = rule_of(tmp_path, CHECKED)
    value = {"spec": {"template": {"spec": {"requirements": []}}, "name": 5}}
    (finding,) = judge(KARPENTER, value, rule=rule)
    assert finding.id == "check-failed"
    assert finding.field == "spec.name"
    assert finding.detail == "`starts_with(spec.name, 'a')` fails on what is there."
    assert finding.unknown


def test_a_check_that_fails_on_a_field_that_is_wrong_says_nothing_more(tmp_path: Path) -> None:
    value = {"spec": {"template": {"spec": {"requirements": []}}, "name": "c", "weight": [5]}}
    (finding,) = judge(KARPENTER, value, rule=rule_of(tmp_path, CHECKED))
    assert finding.reason == "spec.weight is an array, not an integer"


def test_a_policy_may_judge_what_its_match_names(tmp_path: Path) -> None:
    rule = rule_of(
        tmp_path,
        """
  match: {resourceRules: [{apiGroups: [example.com], resources: ["*"], operations: [CREATE]}]}
  resources:
    - group: example.com
      resource: pools
      fields: [{path: spec.size, type: integer, required: true, minimum: 1}]
      checks:
        - {when: spec.size > `8`, fields: [spec.size], message: "size is ${spec.size}", enforcement: warn}
        - {when: spec.size, fields: [spec.size], message: never said, enforcement: "off"}
""",
    )
    pools = ("example.com", "pools")
    assert told(judge(pools, {"spec": {"size": 9}}, rule=rule)) == [(WARN, "spec.size", "size is 9")]
    assert told(judge(pools, {}, rule=rule)) == [(DENY, "spec.size", "spec.size is missing")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not set"),
        (True, "true"),
        ("a\nb", "a b"),
        ({"b": [1], "a": 2}, '{"a": 2, "b": [1]}'),
        ("x" * 99, "x" * 60 + "..."),
    ],
)
def test_values_are_shown_on_one_short_line(value: object, text: str) -> None:
    assert on_one_line(value) == text
    assert MessageTemplate("it is ${a}!")({"a": value}) == f"it is {text}!"


def test_the_pages_own_policy_does_what_the_page_says(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "yaml")
    (tmp_path / "page.yaml").write_text(text)
    (policy,) = load_bundle([tmp_path]).policies
    assert isinstance(policy.validator, NodePoolRules)
    assert told(judge(CKS, pool(targetNodes=17), rule=policy.validator)) == [
        (WARN, "spec.targetNodes", "17 nodes in one pool")
    ]
    (finding,) = judge(CKS, pool(computeClass="spot"), rule=policy.validator)
    assert finding.outcome is DENY


def test_the_page_shows_what_is_said() -> None:
    wrong = pool(autoscaling=True, minNodes=0, targetNodes=9, maxNodes=4)
    (violation,) = judge(CKS, wrong)
    finding = Finding(
        policy="node-pool-rules",
        id=f"node-pool-rules/{violation.id}",
        outcome=DENY,
        reason=violation.reason,
        field=violation.field,
        detail=violation.detail,
        fix=violation.fix,
    )
    assert f"```\n{finding.message()}\n```" in PAGE.read_text()
