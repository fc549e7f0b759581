"""Every manifest in pools/ is read as the pool in its row.

A row has the pool's kind, and its API if that is ambiguous. ``with`` has related objects, such as the pool's template.
``read`` has the expected fields of `Pool`: ``capacity: both``, ``gpu: 'yes'``, ``pool_name: ''``. See `rows_of` for tables.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import BUNDLE
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.provider import readers_by_resource
from webhook.documents import Document
from webhook.inputs.objects import Manifest
from webhook.inputs.state import view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.provider import Provider

JSON = dict[str, Any]


def rows_of(written: JSON) -> Iterator[JSON]:
    """Yield the row, or the rows of a table: each sets the field `at`, or adds to a map there."""
    if "rows" not in written:
        yield written
        return
    shared = {key: value for key, value in written.items() if key not in {"at", "rows"}}
    for row in written["rows"]:
        result = place = copy.deepcopy(shared)
        *parents, last = written["at"].split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = {**place.get(last, {}), **row["is"]} if isinstance(row["is"], dict) else row["is"]
        yield {**result, "read": row["read"]}


ROWS: list[tuple[str, JSON]] = [
    (file.stem, row)
    for file in sorted(Path(__file__).with_name("pools").glob("*.yaml"))
    for written in yaml.load(file.read_text(), yaml.CSafeLoader)
    for row in rows_of(written)
]


def plain(value: Any) -> Any:
    """Return a pool's field in the notation of the rows."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Taint | CapacityType | Gpu) else value


def joined(provider: Provider, *values: JSON) -> Pool:
    """Return the pool that these objects describe together."""
    groups = {reader.kind: reader.group for reader in provider.readers}
    groups |= {reader.listed_in.kind: reader.group for reader in provider.readers if reader.listed_in is not None}
    groups |= {reader.sizer.kind: reader.sizer.group for reader in provider.readers if reader.sizer is not None}
    manifests = [
        Manifest(Document("pools.yaml", 1, value), (), f"{groups[value['kind']]}/v1", value["kind"], value)
        for value in ({"metadata": {"name": "a", "namespace": "team"}, **fields} for fields in values)
    ]
    (pool,) = view_of(manifests, {provider.name: provider}, complete=True).pools or ()
    return pool


def test_every_provider_with_node_pools_has_rows() -> None:
    assert {provider for provider, _ in ROWS} == {reader.provider for reader in BUNDLE.readers}


@pytest.mark.parametrize("name", sorted({name for name, _ in ROWS}))
def test_a_node_pool_is_read_as_its_row_expects(name: str) -> None:
    read = [(row, fields_of(BUNDLE.providers[name], row)) for provider, row in ROWS if provider == name]
    assert [(row, fields) for row, fields in read if fields != row["read"]] == []


def fields_of(provider: Provider, row: JSON) -> JSON:
    """Return the row's expected fields as they are read."""
    group = row.get("apiVersion", "").partition("/")[0]
    readers = [reader for reader in provider.readers if reader.kind == row["kind"] and group in {"", reader.group}]
    if "with" in row or not readers:
        pool = joined(provider, row, *row.get("with", ()))
    else:
        ((group, resource),) = {(reader.group, reader.resource) for reader in readers}
        reader = readers_by_resource([provider])[group, resource]
        pool = reader.read({"metadata": {"name": "a", "namespace": "team"}, **row})
    return {field: plain(getattr(pool, field)) for field in row["read"]}
