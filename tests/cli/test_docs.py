"""The examples in docs/cli/ and docs/platforms/ print what the pages show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import assert_shown, commands
from webhook.commands import COMMANDS

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    *sorted(page for folder in ("cli", "platforms") for page in (ROOT / "docs" / folder).glob("*.md")),
    ROOT / "docs" / "agents.md",
)
_FILE: Final = re.compile(r"((?:[^\n]+\n)*)\n```(?:yaml|json)\n(.*?)```\n", re.DOTALL)
_ALONE: Final = re.compile(r'spotgate ([^|<>;&$]*?)(; echo "exit code \$\?")?')
"""A command that needs no shell, and therefore runs in this process, which is faster."""
_NAME: Final = re.compile(r"`([\w.-]+\.(?:yaml|json))`:\s*$")


EXAMPLES: Final = [
    (command, expected)
    for command, expected in commands(*PAGES)
    # tests/controlplane and tests/rehearse have a cluster for these
    if not command.startswith(("spotgate audit", "spotgate certs", "spotgate doctor", "spotgate rehearse"))
]


@cache
def files() -> dict[str, str]:
    """Return the files that the pages show, by name."""
    shown: dict[str, str] = {}
    for before, body in (pair for page in PAGES for pair in _FILE.findall(page.read_text())):
        name = _NAME.search(before)
        assert name is not None, before
        assert name[1] not in shown, f"two files are called {name[1]}"
        shown[name[1]] = body
    return shown


def test_every_command_without_a_cluster_has_an_example() -> None:
    needing_a_cluster = {"serve", "controller", "audit", "certs", "doctor", "rehearse"}
    run = {command.split()[1] for command, _ in EXAMPLES if command.startswith("spotgate ")}
    assert run == {*COMMANDS} - needing_a_cluster


@pytest.mark.parametrize(("command", "expected"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_example_prints_what_the_page_shows(
    run: Run, write: Write, spotgate: Path, command: str, expected: str
) -> None:
    for name, text in files().items():
        write(name, text)
    if alone := _ALONE.fullmatch(command):
        done = run(*shlex.split(alone[1]))
        printed, error = done.out + f"exit code {done.code}\n" * bool(alone[2]), done.err
    else:
        path = os.pathsep.join((str(spotgate.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = {**os.environ, "PATH": path}
        shell = subprocess.run(["/bin/sh", "-c", command], env=environment, check=False, capture_output=True, text=True)
        printed, error = shell.stdout, shell.stderr
    assert error == ""
    assert_shown(expected, printed)


# Pages about policies

DOCS: Final = Path(__file__).parents[2] / "docs"
POLICY_PAGES: Final = (
    DOCS / "policies" / "common.md",
    *(DOCS / f"{name}.md" for name in ("adding-a-provider", "exempt-a-workload", "how-policies-combine")),
)
FILE: Final = re.compile(r"^`([\w./-]+\.yaml)`:\n\n(?:<!-- [^\n]* -->\n\n)?```yaml\n(.*?)```", re.DOTALL | re.MULTILINE)
ON_POLICY_PAGES: Final = [(page, *example) for page in POLICY_PAGES for example in commands(page)]


@pytest.mark.parametrize(
    ("page", "command", "expected"), ON_POLICY_PAGES, ids=[command for _, command, _ in ON_POLICY_PAGES]
)
def test_policy_page_example_prints_what_the_page_shows(
    run: Run, write: Write, page: Path, command: str, expected: str
) -> None:
    for name, text in FILE.findall(page.read_text()):
        write(name, text)
    command, both, _ = command.partition(" 2>&1")
    done = run(*shlex.split(command)[1:])
    printed = done.err + done.out if both else done.out
    assert both or not done.err
    assert_shown(expected, printed)
