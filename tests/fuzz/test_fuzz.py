"""The fuzzer's harness detects faults, and finds none in a few mutated inputs; `make fuzz` tries many."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import TARGETS, FaultError, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_cause_no_faults(name: str, tmp_path: Path) -> None:
    target, random = TARGETS[name], Random(7)  # noqa: S311 - no secret
    assert len(target.seeds) > 1
    for _ in range(8):
        run(target, mutate(random.choice(target.seeds), target.seeds, random), tmp_path)


@pytest.mark.parametrize("deep", [b"[" * 60_000, b"- " * 30_000, b"{a: " * 15_000, b"&a [*a]"])
def test_deep_inputs_do_not_crash_the_fuzzer(deep: bytes) -> None:
    assert mutate(deep, (deep,), Random(2)) != deep  # noqa: S311 - no secret


def test_a_traceback_and_a_wrong_exit_code_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS["policytests"]
    monkeypatch.setattr("webhook.commands.test.command.run", lambda _: 1 // 0)
    with pytest.raises(FaultError, match="ZeroDivisionError"):
        run(target, target.seeds[0], tmp_path)
    monkeypatch.setattr("webhook.commands.test.command.run", lambda _: 3)
    with pytest.raises(FaultError, match="exit code 3"):
        run(target, target.seeds[0], tmp_path)
