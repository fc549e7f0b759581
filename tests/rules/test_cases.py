"""Every example of a rule comes out as its ``cases.yaml`` says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.rules.cases import RULES, CaseFile, Example, bundle_for, judged, shown
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = [example for path in sorted(RULES.glob("*/cases.yaml")) for example in CaseFile(path).examples()]


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.kind}: {example.behavior}")
def test_example(example: Example, policies: Path) -> None:
    if example.refused:
        with pytest.raises(PolicyErrors, match=re.escape(example.refused)):
            bundle_for(example, policies)
        return
    if example.object is None and example.old is None:
        bundle_for(example, policies)
        return
    changed, decision = judged(example, policies)
    expected = example.expect + [{}] * (len(decision.findings) - len(example.expect))
    assert [shown(*pair) for pair in zip(decision.findings, expected, strict=False)] == example.expect
    assert changed == (example.patched or {})
    assert [text for _, _, text in decision.steps if text in example.trace] == example.trace
