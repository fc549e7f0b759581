"""Lines that are shown: a manifest, or the name of a file, steers neither the terminal nor GitHub's runner."""

from __future__ import annotations

import pytest

from webhook.cli.terminal import plain, show_in_colour


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J\nb\x9b  ", "a [2J b"),
        ("::warning::a", ": :warning::a"),
        ("  \n::warning::a", "   : :warning::a"),
        ("a: ::warning::", "a: ::warning::"),
    ],
)
def test_plain_lines_hold_neither_control_characters_nor_commands(text: str, shown: str) -> None:
    assert plain([[(text, "bold")]]) == shown


def test_lines_in_colour_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show_in_colour([[("a\x1b[2J\nb", "")]])
    assert capsys.readouterr().out == "a [2J b\n"
