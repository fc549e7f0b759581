"""Every format says of the golden repository what is stored."""

from __future__ import annotations

import pytest

from tests.golden.formats import HERE, expected_file, written
from webhook.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_the_report_is_the_stored_one(name: str) -> None:
    stored = expected_file(name)
    assert stored.exists(), "run `make golden`, and read what it writes"
    assert written(name) == stored.read_text(), "run `make golden`, and read the difference"


def test_no_report_is_stored_of_a_format_that_is_gone() -> None:
    assert {file.stem for file in (HERE / "expected").iterdir()} <= set(FORMATS)
