"""Every shipped reader handles objects of any shape, and reports each unreadable field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import BUNDLE
from webhook.capacity.providers.joins import join
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.reader import ANY_TYPE
from webhook.registration.pool_conditions import queries_of

if TYPE_CHECKING:
    from webhook.capacity.providers.joins import Sizer
    from webhook.capacity.providers.reader import PoolReader

READERS = BUNDLE.readers
SIZERS = tuple(reader.sizer for reader in READERS if reader.sizer is not None)

WORD = re.compile(r"[A-Za-z]\w+")


def words_of(part: object) -> set[str]:
    """Return the field names and texts in a reader's expressions."""
    if isinstance(part, Query):
        return set(WORD.findall(part.text))
    if isinstance(part, str):
        return {part}
    if isinstance(part, dict):
        return set().union(*map(words_of, part), *map(words_of, part.values()))
    if isinstance(part, tuple | list):
        return set().union(*map(words_of, part))
    fields = {*getattr(part, "__struct_fields__", ())} - {"facts"}
    return set().union(*(words_of(getattr(part, field)) for field in fields))


def objects_for(part: PoolReader | Sizer) -> st.SearchStrategy[dict[str, Any]]:
    words = st.sampled_from(
        sorted({*words_of(part), "metadata", "spec", "status", "name", "key", "operator", "values"})
    )
    leaves = (
        words
        | st.none()
        | st.booleans()
        | st.integers(-3, 3)
        | st.just(10**30)
        | st.floats()
        | st.text(max_size=5)
        | st.sampled_from(["0", "90s", "a=b:NoSchedule", "In", "p5.48xlarge", "b200-8x"])
    )
    anything = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=8
    )
    return st.fixed_dictionaries({}, optional={"metadata": anything, "spec": anything, "status": anything})


def shaped(reader: PoolReader) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for objects with arbitrary values in the fields that the reader uses."""
    paths = sorted({query.field for query in queries_of(reader) if "." in query.field})
    values = objects_for(reader).map(lambda value: value.get("spec"))

    def build(values: dict[str, Any]) -> dict[str, Any]:
        value: dict[str, Any] = {"metadata": {"name": "a"}}
        for path, leaf in values.items():
            *parents, last = path.split(".")
            place = value
            for parent in parents:
                inner = place.get(parent)
                inner = inner if isinstance(inner, dict) else {}
                place[parent] = inner
                place = inner
            place[last] = leaf
        return value

    return st.dictionaries(st.sampled_from(paths), values, max_size=8).map(build)


# Built once: drawing from strategies is fast, building them is slow.
ANYTHING = {reader.kind + reader.group: objects_for(reader) | shaped(reader) for reader in READERS}
SIZED = {sizer.pool_kind: objects_for(sizer) for sizer in SIZERS}

HUGE = 10**5000  # more digits than Python converts to a string

each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.provider}-{reader.kind}")


@each_reader
@settings(max_examples=15)  # for each of many readers
@given(data=st.data())
def test_a_pool_has_the_declared_types_and_a_reason_for_an_unknown_capacity_or_gpu(
    reader: PoolReader, data: st.DataObject
) -> None:
    value = data.draw(ANYTHING[reader.kind + reader.group])
    pool = reader.read(value)
    texts = (pool.name, pool.namespace, pool.instance_type, pool.gpu_type, pool.blocked, pool.cluster, pool.unusable)
    assert all(isinstance(text, str) for text in (*texts, *pool.problems, *pool.zones))
    assert all(isinstance(part, str) for pair in pool.labels.items() for part in pair)
    assert all(type(number) in {int, type(None)} for number in (pool.desired, pool.maximum, pool.grace_seconds))
    assert all(isinstance(part, str) for taint in pool.taints for part in (taint.key, taint.value, taint.effect))
    assert (pool.grace_seconds is None) is (pool.safety_margin_seconds is None)
    assert all(len(problem) < 400 for problem in pool.problems)
    assert hash(pool.identity) is not None
    if pool.problems or pool.blocked:
        return
    assert pool.capacity is not CapacityType.UNKNOWN
    is_deferred = reader.requirements is not None or reader.template is not None
    if reader.instance_type is not None and reader.instance_type(value) == ANY_TYPE:
        is_deferred = True
    assert pool.gpu is not Gpu.UNKNOWN or pool.instance_type or is_deferred


@each_reader
def test_reading_a_huge_integer_does_not_raise(reader: PoolReader) -> None:
    for query in queries_of(reader):
        *parents, last = query.field.split(".")
        value: dict[str, Any] = {last: HUGE}
        for parent in reversed(parents):
            value = {parent: value}
        assert isinstance(reader.read(value).problems, tuple)


@pytest.mark.parametrize("sizer", SIZERS, ids=lambda sizer: sizer.pool_kind)
@given(data=st.data())
def test_reading_a_size_never_raises(sizer: Sizer, data: st.DataObject) -> None:
    size = sizer.read(data.draw(SIZED[sizer.pool_kind]))
    if size is None:
        return
    assert type(size.desired) in {int, type(None)}
    assert join([(size,)]).pools == ()
