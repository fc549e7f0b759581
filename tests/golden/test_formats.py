"""Every format says of the golden repository what is stored."""

from __future__ import annotations

import pytest

from tests.golden.formats import FILES, HERE, expected_file, written
from webhook.cli.output.outputs import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_the_report_is_the_stored_one(name: str) -> None:
    assert written(name) == expected_file(name).read_text()


def test_there_is_one_for_each_format() -> None:
    assert set(FILES) == set(FORMATS)
    assert {file.name for file in (HERE / "expected").iterdir()} == set(FILES.values())
