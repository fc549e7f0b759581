"""Every example of a rule in ``cases.yaml`` gives the expected result."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.golden import messages, variants
from tests.rules.cases import Example, bundle_for, judged, load_examples, shown
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = load_examples()
BEHAVIORS: defaultdict[str, list[Example]] = defaultdict(list)
for _example in EXAMPLES:
    BEHAVIORS[_example.name].append(_example)


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_examples_of(behavior: str, policies: Path) -> None:
    for example in BEHAVIORS[behavior]:
        expect(example, policies)


def expect(example: Example, policies: Path) -> None:
    if example.refused:
        with pytest.raises(PolicyErrors, match=re.escape(example.refused)):
            bundle_for(example, policies)
        return
    if not example.is_judged:
        bundle_for(example, policies)
        return
    changed, decision = judged(example, policies)
    expected = example.expect + [{}] * (len(decision.findings) - len(example.expect))
    assert [shown(*pair) for pair in zip(decision.findings, expected, strict=False)] == example.expect
    assert changed == (example.patched or {})
    assert [text for text in (step.text for *_, step in decision.steps) if text in example.trace] == example.trace


def test_the_messages_of_variants_match_the_golden_messages(policies: Path) -> None:
    assert variants.current(policies) == messages.stored(variants.FILE), "run `make golden`"
