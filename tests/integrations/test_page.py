"""The commands in docs/gitops.md print what the page shows, and the example repositories give the stored reports."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import assert_shown
from tests.integrations.conftest import REPOS, ROOT
from tests.integrations.repos import COMMANDS, EXPECTED, run

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell

PAGE: Final = (ROOT / "docs/gitops.md").read_text()
_PIECE: Final = re.compile(r"`examples/repos/([\w-]+)`[:.]\s|```console\n(.*?)```", re.DOTALL)
_COMMAND: Final = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def commands() -> list[tuple[str, str, str]]:
    """Return each command of the page with its repository and output."""
    listed, repo = [], ""
    for name, block in _PIECE.findall(PAGE):
        repo = name or repo
        listed += [(repo, command, expected) for command, expected in _COMMAND.findall(block)]
    return listed


@pytest.mark.parametrize(("repo", "command", "expected"), commands(), ids=[command for _, command, _ in commands()])
def test_command_prints_what_the_page_shows(
    shell: Shell, tmp_path: Path, kustomize: Path, helm: Path, repo: str, command: str, expected: str
) -> None:
    needed = command.split(maxsplit=1)[0]
    if needed == "kpt" and shutil.which(needed) is None:
        pytest.skip("kpt is not installed")
    if "| jq " in command and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    folder = Path(shutil.copytree(REPOS, tmp_path / "repos")) / repo

    done = shell(f"set +eo pipefail\n{command}", folder, kustomize, helm, environment={"HOME": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert_shown(expected, done.stdout)


def test_page_names_every_integration() -> None:
    shown = [path for path in (ROOT / "examples/gitops").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    files = [path.relative_to(ROOT).as_posix() for path in shown]
    files += ["action.yml", "templates/spotgate.yml", "examples/repos/"]
    assert [
        file for file in files if f"](../{file})" not in PAGE and not file.endswith("flux/kustomization.yaml")
    ] == []


# The reports of the example repositories


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.startswith("spotgate")])
def test_files(shell: Shell, name: str, kustomize: Path, helm: Path) -> None:
    assert run(name, shell, kustomize, helm).stdout == (EXPECTED / name).read_text()


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.startswith("kustomize")])
def test_built_with_kustomize(shell: Shell, name: str, kustomize: Path) -> None:
    assert run(name, shell, kustomize).stdout == (EXPECTED / name).read_text()


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.startswith("helm")])
def test_rendered_with_helm(shell: Shell, name: str, helm: Path) -> None:
    assert run(name, shell, helm).stdout == (EXPECTED / name).read_text()


def test_every_repository_and_every_expectation_has_a_command() -> None:
    assert {path.name for path in REPOS.iterdir()} == {name.partition(".")[0] for name in COMMANDS}
    assert {path.name for path in EXPECTED.iterdir()} == COMMANDS.keys()
