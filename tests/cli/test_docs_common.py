"""The examples in pages about policies run, and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pages import assert_shown, commands

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = (DOCS / "policies" / "common.md", DOCS / "how-policies-combine.md", DOCS / "exempt-a-workload.md")
FILE: Final = re.compile(r"^`([\w./-]+\.yaml)`:\n\n(?:<!-- [^\n]* -->\n\n)?```yaml\n(.*?)```", re.DOTALL | re.MULTILINE)
COMMANDS: Final = [(page, *example) for page in PAGES for example in commands(page)]


@pytest.mark.parametrize(("page", "command", "expected"), COMMANDS, ids=[command for _, command, _ in COMMANDS])
def test_example_prints_what_the_page_says(run: Run, write: Write, page: Path, command: str, expected: str) -> None:
    for name, text in FILE.findall(page.read_text()):
        write(name, text)
    command, both, _ = command.partition(" 2>&1")
    done = run(*shlex.split(command)[1:])
    printed = done.err + done.out if both else done.out
    assert both or not done.err
    assert_shown(expected, printed)
