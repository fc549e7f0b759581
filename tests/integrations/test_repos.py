"""The repositories in examples/repos are judged as expected/ says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import REPOS
from tests.integrations.repos import COMMANDS, EXPECTED, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integrations.conftest import Shell


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
    assert {each.name for each in REPOS.iterdir()} == {name.partition(".")[0] for name in COMMANDS}
    assert {each.name for each in EXPECTED.iterdir()} == COMMANDS.keys()
