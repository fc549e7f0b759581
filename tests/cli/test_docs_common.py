"""The examples in docs/policies/common.md run, and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pages import assert_shown, commands

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


PAGE: Final = Path(__file__).parents[2] / "docs" / "policies" / "common.md"
FILES: Final = re.findall(
    r"^`([\w./-]+\.yaml)`:\n\n(?:<!-- [^\n]* -->\n\n)?```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE
)
COMMANDS: Final = commands(PAGE)


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_example_prints_what_the_page_says(run: Run, write: Write, command: str, expected: str) -> None:
    for name, text in FILES:
        write(name, text)
    command, both, _ = command.partition(" 2>&1")
    done = run(*shlex.split(command)[1:])
    printed = done.err + done.out if both else done.out
    assert both or not done.err
    assert_shown(expected, printed)
