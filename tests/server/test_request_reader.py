from __future__ import annotations

import pytest

from webhook.base.text import go_duration
from webhook.rules.context import Phase
from webhook.server.http.request_reader import RequestTarget, parse_target


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("500ms", 0.5),
        ("1m30s", 90),
        ("1h", 3600),
        ("1.5s", 1.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("1ns", 1e-9),
        ("0s", 0),
    ],
)
def test_a_Go_duration_is_parsed(text: str, seconds: float) -> None:
    assert go_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1 s", "1s ", "1x", "1e3s", "s1", "\u0661s", "1..5s"])
def test_an_invalid_duration_is_none(text: str) -> None:
    assert go_duration(text) is None


@pytest.mark.parametrize(
    ("target", "route"),
    [
        ("/mutate?timeout=3s", RequestTarget(Phase.MUTATE, 3)),
        ("/validate?timeout=500ms", RequestTarget(Phase.VALIDATE, 0.5)),
        ("/validate?dryRun=All&timeout=2s", RequestTarget(Phase.VALIDATE, 2)),
        ("/validate", RequestTarget(Phase.VALIDATE, 10)),
        ("/validate?timeout=soon", RequestTarget(Phase.VALIDATE, 10)),
        ("https://webhook.svc/mutate?timeout=3s", None),
        ("/", None),
        ("/mutate/", None),
        ("/Mutate", None),
        ("/mutate/x", None),
        ("*", None),
        ("//[", None),
    ],
)
def test_a_target_is_a_phase_and_a_timeout_or_none(target: str, route: RequestTarget | None) -> None:
    assert parse_target(target) == route
