"""Node pools are read as the rows of pools/ say: what is written, and what of the pool comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.objects import BUNDLE
from webhook.capacity.providers.pool import CapacityType, Gpu, Taint

JSON = dict[str, Any]

ROWS: list[tuple[str, JSON]] = [
    (file.stem, row)
    for file in sorted(Path(__file__).with_name("pools").glob("*.yaml"))
    for row in yaml.load(file.read_text(), yaml.CSafeLoader)
]


def plain(value: Any) -> Any:
    """Return a field of a pool as it stands in a row."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Taint | CapacityType | Gpu) else value


def test_every_provider_has_rows() -> None:
    assert {provider for provider, _ in ROWS} == BUNDLE.providers.keys()


@pytest.mark.parametrize(("provider", "row"), ROWS)
def test_a_node_pool_is_read_as_its_row_says(provider: str, row: JSON) -> None:
    """A row has a kind of the provider, with its API where several have it; `read` has the fields that it is about."""
    group = row.get("apiVersion", "").partition("/")[0]
    (reader,) = (
        each for each in BUNDLE.providers[provider].readers if each.kind == row["kind"] and group in {"", each.group}
    )
    pool = reader.read({"metadata": {"name": "a", "namespace": "team"}, **row})
    assert {field: plain(getattr(pool, field)) for field in row["read"]} == row["read"]
