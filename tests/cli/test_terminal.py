"""Lines that are shown: a manifest, or the name of a file, steers neither the terminal nor GitHub's runner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from webhook.base.terminal import plain, show_in_colour

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


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


@pytest.mark.parametrize("command", ["check", "explain", "fix", "test"])
def test_nor_do_the_errors_of_policies(run: Run, write: Write, command: str) -> None:
    key = json.dumps("a\n::error title=x::injected \u202e\x1b[31m")
    write("p.yaml", f"apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {{name: a}}\nspec: {{{key}: 1}}\n")
    done = run(command, "--policies", "p.yaml", "p.yaml")
    assert done.code == 2
    assert "unknown field `a\n: :error title=x::injected   [31m`\n" in done.err
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
