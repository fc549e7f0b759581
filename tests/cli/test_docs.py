"""The examples in docs/cli.md run, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[2] / "docs" / "cli.md"
_BLOCK: Final = re.compile(r"((?:[^\n]+\n)*)\n```(\w+)\n(.*?)```\n", re.DOTALL)
_NAME: Final = re.compile(r"`([\w.-]+\.(?:yaml|json))`:\s*$")


def blocks(language: str) -> list[tuple[str, str]]:
    """The paragraph before each block of this language, and what is in the block."""
    return [(before, body) for before, name, body in _BLOCK.findall(PAGE.read_text()) if name == language]


COMMANDS: Final = [
    (command, expected)
    for _, body in blocks("console")
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the page shows, and the program on its path."""
    for language in ("yaml", "json"):
        for before, body in blocks(language):
            name = _NAME.search(before)
            assert name is not None, before
            (tmp_path / name[1]).write_text(body)
    program = tmp_path / "bin" / "spotgate"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom webhook.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    return tmp_path


def test_page_has_examples_of_every_command_that_ends() -> None:
    assert {command.split()[1] for command, _ in COMMANDS} == {
        "check",
        "explain",
        "export",
        "fix",
        "fn",
        "new",
        "replay",
        "review",
        "schema",
        "webhook-config",
        "test",
    }


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_example_prints_what_the_page_says(folder: Path, command: str, expected: str) -> None:
    path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(PAGE.parents[1])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    pattern = re.escape(expected).replace(re.escape("...\n"), r"(?s:.*)")
    assert re.fullmatch(pattern, done.stdout), done.stdout
