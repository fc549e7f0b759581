"""NodePoolRules: the page, and how messages show values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import blocks
from tests.rules.nodepools import CKS, judge, pool, told
from webhook.engine.bundle import load_bundle
from webhook.model.decision import Finding, Outcome
from webhook.rules.node_pool_rules.message import MessageTemplate, on_one_line
from webhook.rules.node_pool_rules.rule import NodePoolRules

PAGE = Path(__file__).parents[2] / "docs" / "policies" / "node-pool-rules.md"
DENY, WARN = Outcome.DENY, Outcome.WARN


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
    assert violation.part.startswith("resources[0].checks[")
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
