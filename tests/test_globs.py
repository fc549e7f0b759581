"""Globs, and what is certain of two of them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.globs import Globs, covers, problem_with

WORDS = ["".join(letters) for length in range(4) for letters in product("ab", repeat=length)]
globs = st.text("ab*?", min_size=1, max_size=4) | st.sampled_from(("[ab]", "a[ab]", "[ab]*", "*[b]", "[!a]"))


@settings(max_examples=500)
@given(globs, globs)
def test_a_glob_that_covers_another_matches_all_that_it_matches(wide: str, narrow: str) -> None:
    assert not problem_with(wide)
    if covers(wide, narrow):
        matches = Globs([wide]).match
        assert not [word for word in filter(Globs([narrow]).match, WORDS) if not matches(word)]


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("*", "team-[ab]", True),
        ("team-*", "team-a", True),
        ("team-*", "team-*-dev", True),
        ("team-*", "team-?", True),
        ("team-[ab]", "team-a", True),
        ("team-?", "team-*", False),
        ("team-a", "team-*", False),
        ("*]", "team-[ab]", False),
    ],
)
def test_globs_cover_what_they_plainly_do(wide: str, narrow: str, *, expected: bool) -> None:
    assert covers(wide, narrow) is expected
