"""The head of every rule module has the same sections, and names the findings that the rule can have."""

import re
from pathlib import Path

import pytest
import yaml

import webhook.rules

FOLDERS = sorted(each.parent for each in Path(webhook.rules.__file__).parent.glob("*/rule.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_head_of_a_rule_has_all_sections_in_order_and_names_its_findings(folder: Path) -> None:
    head = (folder / "rule.py").read_text().split('"""')[1]
    sections = re.split(r"^(\w+)\n", head, flags=re.MULTILINE)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert list(found) == ["Intent", "Reads", "Writes", "Finds", "Source"]
    assert re.findall(r"[a-z-]+", found["Finds"]) == list(yaml.safe_load((folder / "findings.yaml").read_text()))
