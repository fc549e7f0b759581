"""docs/webhook-contract.md lists exactly the tests of the contract."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "webhook-contract.md"


def test_the_page_lists_all_cases_and_their_tests() -> None:
    page = PAGE.read_text()
    sources = [file.read_text() for file in HERE.glob("test_*.py") if file != Path(__file__)]
    written = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    assert set(re.findall(r"`(test_\w+)`", page)) == written
    cases = [number for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for number in row.split(", ")]
    assert cases == [str(number) for number in range(1, 23)]
