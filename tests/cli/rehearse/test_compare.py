"""The comparison of two rehearsals, and the files of a branch's base."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.cli.rehearse.test_fixes import WEB, rehearsed
from webhook.base.exits import CannotJudgeError
from webhook.rehearse.compare import compare, write_base
from webhook.rehearse.result import Figure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("before", "after", "worse", "better"),
    [
        pytest.param({}, {}, [], [], id="the same"),
        pytest.param({}, {"pending": Figure(1, 2)}, ["pending 0 -> 1-2"], [], id="more pending in every run"),
        pytest.param({"pending": Figure(0, 2)}, {"pending": Figure(2, 4)}, [], [], id="overlapping figures are equal"),
        pytest.param({"killed_early": Figure(3, 3)}, {}, [], ["killedEarly 3 -> 0"], id="fewer killed"),
        pytest.param(
            {"lowest_ready": Figure(4, 5)},
            {"lowest_ready": Figure(0, 1), "seconds_below_budget": Figure(30, 30)},
            ["secondsBelowBudget 0 -> 30", "lowestReady 4-5 -> 0-1"],
            [],
            id="fewer ready",
        ),
        pytest.param({"pending": Figure()}, {"pending": Figure(3, 3)}, [], [], id="unknown figures are not compared"),
    ],
)
def test_a_figure_differs_only_if_it_differs_in_every_run(
    before: dict[str, Figure], after: dict[str, Figure], worse: list[str], better: list[str]
) -> None:
    compared = compare(rehearsed(**before), rehearsed(**after), "main")
    assert [str(change) for change in compared.worse] == [f"Deployment shop/web: {change}" for change in worse]
    assert [str(change) for change in compared.better] == [f"Deployment shop/web: {change}" for change in better]


def test_a_workload_in_only_one_rehearsal_has_no_pending_pods_in_the_other() -> None:
    result = rehearsed(pending=Figure(2, 2))
    nothing = msgspec.structs.replace(result, workloads=())
    assert [
        ((diff.kind, diff.namespace, diff.name), diff.figure) for diff in compare(nothing, result, "main").worse
    ] == [(WEB, "pending")]
    assert [
        ((diff.kind, diff.namespace, diff.name), diff.figure) for diff in compare(result, nothing, "main").better
    ] == [(WEB, "pending")]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository with a branch whose base has other files."""
    root = tmp_path / "repository"
    (root / "deploy").mkdir(parents=True)
    (root / "deploy" / "web.yaml").write_text("old")
    (root / "deploy" / "gone.yaml").write_text("gone")
    (root / "deployments.yaml").write_text("another")

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", root, *identity, *arguments], check=True, capture_output=True)  # noqa: S607

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "base")
    git("checkout", "-b", "branch")
    (root / "deploy" / "web.yaml").write_text("new")
    (root / "deploy" / "gone.yaml").unlink()
    (root / "new.yaml").write_text("new")
    monkeypatch.chdir(root)
    return root


def test_the_base_has_the_original_files(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "state.yaml"
    outside.write_text("outside")
    into = tmp_path / "base"
    places = write_base("main", ["deploy", "new.yaml", str(outside)], into)
    assert places == [str(into / "deploy"), str(outside)]
    assert {file.name: file.read_text() for file in (into / "deploy").iterdir()} == {
        "web.yaml": "old",
        "gone.yaml": "gone",
    }
    assert not (into / "deployments.yaml").exists()
    assert (repository / "deploy" / "web.yaml").read_text() == "new"


@pytest.mark.parametrize(("ref", "path", "error"), [("nobody", "deploy", "nobody"), ("main", "-", "standard input")])
@pytest.mark.usefixtures("repository")
def test_a_missing_base_is_an_error(ref: str, path: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(CannotJudgeError, match=error):
        write_base(ref, [path], tmp_path / "base")


def test_a_folder_whose_name_begins_with_two_periods_is_in_the_repository(repository: Path, tmp_path: Path) -> None:
    (repository / "..deploy").mkdir()
    (repository / "..deploy" / "new.yaml").write_text("new")
    assert write_base("main", ["..deploy"], tmp_path / "base") == []  # the base lacks it
