"""Paths and fingerprints for platforms: of the repository, whatever was typed and wherever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import POD
from webhook.offline.report import repository_paths

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


@pytest.fixture(autouse=True)
def repository(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a repository, and no platform."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    write("work/repo/.git/HEAD", "")
    write("work/repo/apps/deploy/pod.yaml", POD)
    write("work/repo/apps/deploy/bad.yaml", "apiVersion: v1\nkind: Pod\na: [")


def shown(run: Run, policies: Path, output: str, path: str | Path) -> Any:
    return run("check", "--policies", policies, "-o", output, path)


@pytest.mark.parametrize("output", ["gitlab", "sarif", "github"])
def test_a_report_is_the_same_wherever_it_is_made_and_however_paths_are_typed(
    run: Run, policies: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def report(path: str | Path) -> str:
        out: str = shown(run, policies, output, path).out
        return out

    whole = Path("work/repo/apps/deploy").absolute()
    first = report("work/repo/apps/deploy")
    assert "apps/deploy/pod.yaml" in first
    assert "work/repo" not in first
    assert report(whole) == first
    for folder, path in (
        ("apps", "deploy"),
        ("apps", "./deploy/../deploy/"),
        ("apps/deploy", "."),
        ("apps/deploy", "../deploy"),
    ):
        monkeypatch.chdir(whole.parents[1] / folder)
        assert report(path) == first


def paths_of(*files: str) -> list[str]:
    found = repository_paths(files)
    return [found[file] for file in files]


def test_the_repository_that_the_platform_names_is_meant(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("work/repo/part/.git", "gitdir: elsewhere\n")  # a submodule
    assert paths_of("work/repo/part/a.yaml", "work/repo/b.yaml") == ["a.yaml", "b.yaml"]
    monkeypatch.setenv("CI_PROJECT_DIR", str(Path("work/repo").absolute()))
    assert paths_of("work/repo/part/a.yaml", "work/repo/b.yaml") == ["part/a.yaml", "b.yaml"]


def test_a_repository_in_a_part_of_the_workspace_has_its_own_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(Path("work").absolute()))
    assert paths_of("work/repo/a.yaml", "work/b.yaml") == ["a.yaml", "b.yaml"]


def test_what_is_in_no_repository_is_named_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("work")
    assert paths_of("./a.yaml", "../b.yaml", "-") == ["a.yaml", "../b.yaml", "-"]
