"""The examples in docs/policies/common.md run, and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


PAGE: Final = (Path(__file__).parents[2] / "docs" / "policies" / "common.md").read_text()
FILES: Final = re.findall(
    r"^`([\w./-]+\.yaml)`:\n\n(?:<!-- [^\n]* -->\n\n)?```yaml\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE
)
COMMANDS: Final = [
    example
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for example in re.findall(r"^\$ spotgate (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_example_prints_what_the_page_says(run: Run, write: Write, command: str, expected: str) -> None:
    for name, text in FILES:
        write(name, text)
    command, both, _ = command.partition(" 2>&1")
    done = run(*shlex.split(command))
    printed = done.err + done.out if both else done.out
    assert both or not done.err
    pattern = re.escape(expected).replace(re.escape("...\n"), r"(?s:.*)")
    assert re.fullmatch(pattern, printed), printed
