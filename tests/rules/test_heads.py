"""The docstring of every rule module has the same sections and lists the rule's findings. `KIND` declares what it reads."""

import re
from pathlib import Path

import pytest
import yaml

import webhook.rules
from webhook.engine.bundle import policy_kinds
from webhook.policy.match import PODS_CREATE
from webhook.rules.graceful_termination import rule as graceful_termination
from webhook.rules.protocol import Facts, PolicyKind
from webhook.rules.reclaim_notice import rule as reclaim_notice
from webhook.rules.spot_placement import rule as spot_placement

KINDS = (spot_placement.KIND, graceful_termination.KIND, reclaim_notice.KIND)
FOLDERS = sorted(file.parent for file in Path(webhook.rules.__file__).parent.glob("*/rule.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_rules_docstring_has_all_sections_and_lists_its_findings(folder: Path) -> None:
    head = (folder / "rule.py").read_text().split('"""')[1]
    sections = re.split(r"^(\w+)\n", head, flags=re.MULTILINE)
    parts = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert list(parts) == ["Intent", "Reads", "Writes", "Finds", "Source"]
    assert re.findall(r"[a-z-]+", parts["Finds"]) == list(yaml.safe_load((folder / "findings.yaml").read_text()))


@pytest.mark.parametrize("kind", policy_kinds().values(), ids=lambda kind: kind.name)
def test_a_kind_declares_that_its_rule_reads_budgets(kind: PolicyKind) -> None:
    folder = Path(webhook.rules.__file__).parent / kind.slug.replace("-", "_")
    assert kind.budgets == any("view.budgets" in file.read_text() for file in folder.glob("*.py"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_that_changes_pods_matches_CREATE(kind: PolicyKind) -> None:
    assert kind.rules(Facts({})) == (PODS_CREATE,)
