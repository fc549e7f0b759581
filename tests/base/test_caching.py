"""The identity cache compares objects by identity, and keeps only the most recent ones alive."""

from __future__ import annotations

import gc
import weakref

from webhook.base.caching import identity_cache


class Pools(list[str]):
    """A list that supports weak references."""


def test_an_equal_object_misses_the_cache() -> None:
    seen: list[Pools] = []

    @identity_cache(maxsize=2)
    def made(pools: Pools) -> str:
        seen.append(pools)
        return ", ".join(pools)

    one, other = Pools(["a"]), Pools(["a"])
    assert [made(pools) for pools in (one, one, other, one, other)] == ["a"] * 5
    assert [id(pools) for pools in seen] == [id(one), id(other)]


def test_all_arguments_are_part_of_the_key() -> None:
    @identity_cache(maxsize=4)
    def joined(one: Pools, other: Pools) -> Pools:
        return Pools([*one, *other])

    a, b = Pools("a"), Pools("b")
    assert (joined(a, b), joined(b, a), joined(a, a)) == (["a", "b"], ["b", "a"], ["a", "a"])
    assert joined(a, b) is joined(a, b)


def test_the_cache_keeps_at_most_maxsize_objects_alive() -> None:
    made = identity_cache(maxsize=2)(len)
    alive = []
    for number in range(5):
        pools = Pools(["a"] * number)
        alive.append(weakref.ref(pools))
        assert made(pools) == number
    del pools
    gc.collect()
    assert [reference() is not None for reference in alive] == [False, False, False, True, True]
