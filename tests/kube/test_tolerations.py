"""Tolerations: which they cover, which taints they tolerate, and which taints get one."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.pod import Toleration
from webhook.kube.tolerations import any_covers, covers, is_label, tolerates, toleration_for


class Taint(NamedTuple):
    key: str
    value: str = ""
    effect: str = "NoSchedule"


SPOT = Taint("spot", "true")
EXACT = Toleration("spot", "Equal", "true", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        (EXACT, SPOT, True),
        (Toleration("spot", "", "true", "NoSchedule"), SPOT, True),
        (Toleration("spot", "Equal", "true"), SPOT, True),
        (Toleration("spot", "Exists"), SPOT, True),
        (Toleration("", "Exists"), SPOT, True),
        (Toleration("", "Exists", effect="NoExecute"), SPOT, False),
        (Toleration("spot", "Equal", "false", "NoSchedule"), SPOT, False),
        (Toleration("spot", "Equal"), SPOT, False),
        (Toleration("spot", "Equal"), Taint("spot"), True),
        (Toleration("spotty", "Exists"), SPOT, False),
        (Toleration("spot", "Exists", effect="NoExecute"), SPOT, False),
        (Toleration("spot", "Gt", "1"), Taint("spot", "2"), False),
        (Toleration(), SPOT, False),
    ],
)
def test_a_toleration_matches_key_value_and_effect(toleration: Toleration, taint: Taint, expected: bool) -> None:  # noqa: FBT001
    assert tolerates(toleration, taint) is expected


@pytest.mark.parametrize(
    ("existing", "wanted", "expected"),
    [
        (EXACT, EXACT, True),
        (Toleration("spot", "", "true", "NoSchedule"), EXACT, True),
        (EXACT, Toleration("spot", "", "true", "NoSchedule"), True),
        (Toleration("spot", "Exists"), EXACT, True),
        (Toleration("", "Exists"), EXACT, True),
        (Toleration("", "Exists", effect="NoSchedule"), EXACT, True),
        (Toleration("spot", "Equal", "true"), EXACT, True),
        (EXACT, Toleration("spot", "Exists"), False),
        (EXACT, Toleration("spot", "Equal", "true"), False),
        (EXACT, Toleration("spot", "Equal", "false", "NoSchedule"), False),
        (Toleration("spot", "Equal", "", "NoSchedule"), Toleration("spot", "Exists", "", "NoSchedule"), False),
        (Toleration("spot", "Gt", "5"), Toleration("spot", "Gt", "5"), True),
        (Toleration("spot", "Gt", "5"), Toleration("spot", "Equal", "5"), False),
        (Toleration("spot", "Exists"), Toleration("", "Exists"), False),
    ],
)
def test_a_superset_covers_a_toleration(existing: Toleration, wanted: Toleration, expected: bool) -> None:  # noqa: FBT001
    assert covers(existing, wanted) is expected


@pytest.mark.parametrize(
    ("existing", "wanted", "expected"),
    [(None, None, True), (None, 60, True), (60, None, False), (60, 60, True), (60, 30, True), (30, 60, False)],
)
def test_a_shorter_toleration_does_not_cover_a_longer_one(
    existing: int | None,
    wanted: int | None,
    expected: bool,  # noqa: FBT001
) -> None:
    def lasting(seconds: int | None) -> Toleration:
        return Toleration("spot", "Exists", "", "NoExecute", seconds)

    assert covers(lasting(existing), lasting(wanted)) is expected


def test_any_of_several_tolerations_covers() -> None:
    assert any_covers([Toleration("other", "Exists"), Toleration("spot", "Exists")], EXACT)
    assert not any_covers([Toleration("other", "Exists")], EXACT)
    assert not any_covers(None, EXACT)


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        (SPOT, EXACT),
        (Taint("spot"), Toleration("spot", "Exists", "", "NoSchedule")),
        (Taint("spot", effect="NoExecute"), Toleration("spot", "Exists", "", "NoExecute")),
        (
            Taint("a.example/is_gpu", "1", "PreferNoSchedule"),
            Toleration("a.example/is_gpu", "Equal", "1", "PreferNoSchedule"),
        ),
        (Taint(""), None),
        (Taint("spot", effect=""), None),
        (Taint("spot", effect="no-schedule"), None),
        (Taint("two words"), None),
        (Taint("spot", "two words"), None),
    ],
)
def test_a_taint_gets_the_narrowest_toleration_and_a_malformed_one_gets_none(
    taint: Taint, expected: Toleration | None
) -> None:
    assert toleration_for(taint) == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("a", "", True),
        ("example.com/a", "b", True),
        ("is_gpu", "a.b-c_d", True),
        ("A" * 63, "a" * 63, True),
        ("a" * 64, "", False),
        ("a", "a" * 64, False),
        ("", "a", False),
        ("/a", "a", False),
        ("example.com/", "a", False),
        ("Example.com/a", "a", False),
        ("a/b/c", "a", False),
        ("a" * 253 + "/a", "", True),
        ("a" * 254 + "/a", "", False),
        ("-a", "", False),
        ("a", "-a", False),
        ("a", "a-", False),
        ("a\n", "", False),
        ("a", "b\n", False),
    ],
)
def test_a_label_is_valid_if_the_api_server_accepts_it(key: str, value: str, expected: bool) -> None:  # noqa: FBT001
    assert is_label(key, value) is expected


_keys = st.sampled_from(["", "spot", "gpu"])
_values = st.sampled_from(["", "true", "false"])
_effects = st.sampled_from(["", "NoSchedule", "NoExecute", "PreferNoSchedule"])


def _valid(key: str, operator: str, value: str, effect: str) -> Toleration:
    if operator == "Exists" or not key:
        return Toleration(key, "Exists", "", effect)
    return Toleration(key, operator, value, effect)


_tolerations: Any = st.builds(_valid, _keys, st.sampled_from(["", "Equal", "Exists"]), _values, _effects)
_taints: Any = st.builds(Taint, _keys.filter(bool), _values, _effects.filter(bool))


@given(_tolerations, _tolerations, _taints)
def test_a_covering_toleration_tolerates_every_taint_of_the_covered(
    existing: Toleration, wanted: Toleration, taint: Taint
) -> None:
    if covers(existing, wanted) and tolerates(wanted, taint):
        assert tolerates(existing, taint)


@given(_taints)
def test_the_toleration_for_a_taint_tolerates_only_that_taint(taint: Taint) -> None:
    toleration = toleration_for(taint)
    assert toleration is not None
    assert tolerates(toleration, taint)
    assert not tolerates(toleration, taint._replace(key=f"{taint.key}x"))
    assert not any(
        tolerates(toleration, taint._replace(effect=effect))
        for effect in ("NoSchedule", "NoExecute")
        if effect != taint.effect
    )
