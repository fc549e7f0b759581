"""Every format renders the golden report of the golden repository."""

from __future__ import annotations

import pytest

from tests.golden.formats import HERE, expected_file, written
from webhook.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_the_report_matches_the_golden_report(name: str) -> None:
    stored = expected_file(name)
    assert stored.exists(), "run `make golden`, and read the new file"
    assert written(name) == stored.read_text(), "run `make golden`, and read the diff"


def test_every_golden_report_has_a_format() -> None:
    assert {file.stem for file in (HERE / "expected").iterdir()} <= set(FORMATS)
