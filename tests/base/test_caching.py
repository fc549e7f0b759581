"""What is remembered for objects is remembered for these very objects, for as long as few others come, and no longer."""

from __future__ import annotations

import gc
import weakref

from webhook.base.caching import identity_cache


class Pools(list[str]):
    """A list that can be seen to go."""


def test_an_equal_object_is_another_one() -> None:
    seen: list[Pools] = []

    @identity_cache(maxsize=2)
    def made(pools: Pools) -> str:
        seen.append(pools)
        return ", ".join(pools)

    one, other = Pools(["a"]), Pools(["a"])
    assert [made(each) for each in (one, one, other, one, other)] == ["a"] * 5
    assert [id(each) for each in seen] == [id(one), id(other)]


def test_all_arguments_count() -> None:
    @identity_cache(maxsize=4)
    def joined(one: Pools, other: Pools) -> Pools:
        return Pools([*one, *other])

    a, b = Pools("a"), Pools("b")
    assert (joined(a, b), joined(b, a), joined(a, a)) == (["a", "b"], ["b", "a"], ["a", "a"])
    assert joined(a, b) is joined(a, b)


def test_no_more_is_kept_alive_than_was_asked_for() -> None:
    made = identity_cache(maxsize=2)(len)
    alive = []
    for number in range(5):
        pools = Pools(["a"] * number)
        alive.append(weakref.ref(pools))
        assert made(pools) == number
    del pools
    gc.collect()
    assert [each() is not None for each in alive] == [False, False, False, True, True]
