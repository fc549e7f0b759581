"""The flag that selects the duties of a controller."""

from __future__ import annotations

import argparse

import pytest

from webhook.commands.controller.command import configure


def duties(*flags: str) -> tuple[str, ...]:
    parser = argparse.ArgumentParser()
    configure(parser)
    chosen: tuple[str, ...] = parser.parse_args(flags).duties
    return chosen


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        ([], ("floor",)),
        (["--duties=notice"], ("notice",)),
        (["--duties=floor,notice"], ("floor", "notice")),
        (["--duties", "notice,floor,notice"], ("notice", "floor")),
    ],
)
def test_without_the_flag_a_controller_only_keeps_floors(flags: list[str], chosen: tuple[str, ...]) -> None:
    assert duties(*flags) == chosen


@pytest.mark.parametrize("text", ["", "Floor", "floor, notice", "floor,,notice", "all"])
def test_an_unknown_duty_is_an_error_that_names_the_known_ones(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        duties("--duties", text)
    assert ended.value.code == 2
    assert "isn't a duty; write floor, notice, or both" in capsys.readouterr().err
