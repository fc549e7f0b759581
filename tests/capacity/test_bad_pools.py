"""Every shipped reader handles objects of any shape, and reports each unreadable field."""

from __future__ import annotations

import math
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, note
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


ODD = (
    *(None, True, False, *range(-3, 4), 10**30, 1.5, -0.0, math.nan, math.inf, "", " ", "\x00", "é𝒳"),
    *("0", "90s", "a=b:NoSchedule", "In", "p5.48xlarge", "b200-8x"),
)


class Objects:
    """Objects of any shape, with arbitrary values in the fields that a reader uses.

    Hypothesis draws only the seed: to draw each part of an object would take ten times as long as to read it.
    """

    def __init__(self, part: PoolReader | Sizer) -> None:
        words = {*words_of(part), "metadata", "spec", "status", "name", "key", "operator", "values"}
        self._words = sorted(words)
        self._paths = sorted({query.field for query in queries_of(part) if "." in query.field})

    def of(self, seed: int) -> dict[str, Any]:
        """Return the object of a seed."""
        random = Random(seed)  # noqa: S311 - no secret
        value: dict[str, Any] = {
            field: self._value(random) for field in ("metadata", "spec", "status") if random.randrange(2)
        }
        if random.randrange(2):
            value = {"metadata": {"name": "a"}}
            for path in random.choices(self._paths, k=random.randrange(9)):
                *parents, last = path.split(".")
                place = value
                for parent in parents:
                    if not isinstance(place.get(parent), dict):
                        place[parent] = {}
                    place = place[parent]
                place[last] = self._value(random)
        return value

    def _value(self, random: Random, depth: int = 3) -> Any:
        kind = random.randrange(5 if depth else 2)
        if kind < 2:
            return random.choice(self._words if kind else ODD)
        values = (self._value(random, depth - 1) for _ in range(random.randrange(5)))
        return list(values) if kind == 2 else {random.choice(self._words): value for value in values}


ANYTHING = {reader.kind + reader.group: Objects(reader) for reader in READERS}
SIZED = {sizer.pool_kind: Objects(sizer) for sizer in SIZERS}

any_seed = given(seed=st.integers(0, 2**64))

HUGE = 10**5000  # more digits than Python converts to a string

each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.provider}-{reader.kind}")


@each_reader
@any_seed
def test_a_pool_has_the_declared_types_and_a_reason_for_an_unknown_capacity_or_gpu(
    reader: PoolReader, seed: int
) -> None:
    value = ANYTHING[reader.kind + reader.group].of(seed)
    note(str(value))
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
@any_seed
def test_reading_a_size_never_raises(sizer: Sizer, seed: int) -> None:
    size = sizer.read(SIZED[sizer.pool_kind].of(seed))
    if size is None:
        return
    assert type(size.desired) in {int, type(None)}
    assert join([(size,)]).pools == ()
