"""Paths and fingerprints for platforms are relative to the repository, for any working directory and spelling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import POD, SPOT_POOL
from webhook.report.report import repository_paths

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


@pytest.fixture(autouse=True)
def repository(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a repository without a platform."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    write("work/repo/.git/HEAD", "")
    write("work/repo/apps/deploy/pod.yaml", POD)
    write("work/repo/apps/deploy/bad.yaml", "apiVersion: v1\nkind: Pod\na: [")


def run_check(run: Run, policies: Path, output: str, path: str | Path) -> Any:
    return run("check", "--policies", policies, "-o", output, path)


@pytest.mark.parametrize("output", ["gitlab", "sarif", "github"])
def test_a_report_is_independent_of_the_working_directory_and_path_spelling(
    run: Run, policies: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def report(path: str | Path) -> str:
        out: str = run_check(run, policies, output, path).out
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
    paths = repository_paths(files)
    return [paths[file] for file in files]


def test_the_repository_named_by_the_platform_is_used(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("work/repo/part/.git", "gitdir: elsewhere\n")  # a submodule
    assert paths_of("work/repo/part/a.yaml", "work/repo/b.yaml") == ["a.yaml", "b.yaml"]
    monkeypatch.setenv("CI_PROJECT_DIR", str(Path("work/repo").absolute()))
    assert paths_of("work/repo/part/a.yaml", "work/repo/b.yaml") == ["part/a.yaml", "b.yaml"]


def test_a_nested_repository_has_its_own_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(Path("work").absolute()))
    assert paths_of("work/repo/a.yaml", "work/b.yaml") == ["a.yaml", "b.yaml"]


def test_paths_outside_a_repository_are_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("work")
    assert paths_of("./a.yaml", "../b.yaml", "-") == ["a.yaml", "../b.yaml", "-"]


# GitLab

TWO_LABELS = POD.replace("team: a", 'team: a\n    example.com/owner: "b"')


def issues(run: Run, policies: Path, *paths: str | Path) -> Any:
    return run("check", "-o", "gitlab", "--policies", policies, *paths).json


def test_fingerprints_are_unique_and_survive_moved_lines(run: Run, write: Write, policies: Path) -> None:
    file = write("pod.yaml", f"{TWO_LABELS}---\n{TWO_LABELS}")
    before = [issue["fingerprint"] for issue in issues(run, policies, file)]
    write("pod.yaml", f"# a line more\n{TWO_LABELS}---\n# and here\n{TWO_LABELS}")
    assert [issue["fingerprint"] for issue in issues(run, policies, file)] == before
    assert len(set(before)) == len(before) == 4


def test_each_outcome_has_a_severity(run: Run, write: Write, policies: Path) -> None:
    reported = issues(run, policies, "--partial", write("pod.yaml", f"{POD}---\n{SPOT_POOL}"))
    assert {(issue["check_name"], issue["severity"]) for issue in reported} == {
        ("reserved-labels/reserved", "critical"),
        ("on-demand-fallback/pools-unknown", "minor"),
    }


def test_an_unreadable_file_is_a_blocker(run: Run, write: Write, policies: Path) -> None:
    write("bad.yaml", "a: [\n")
    (issue,) = issues(run, policies, "bad.yaml", "nowhere.yaml")[:1]
    assert (issue["severity"], issue["location"]) == ("blocker", {"path": "bad.yaml", "lines": {"begin": 2}})
    missing = issues(run, policies, "nowhere.yaml")[0]
    assert missing["location"] == {"path": "nowhere.yaml", "lines": {"begin": 1}}
    assert missing["description"].startswith("can't be evaluated: can't be read: No such file")


def test_an_issue_is_one_line_whatever_its_fix(run: Run, write: Write) -> None:
    pod = POD.replace("  labels:\n    example.com/team: a\n", "  labels: {spotgate.dev/capacity: spot}\n")
    reported = run("check", "-o", "gitlab", write("pod.yaml", pod)).json
    assert reported
    assert not [issue for issue in reported if "\n" in issue["description"]]


def test_a_hint_ends_its_sentence(run: Run, write: Write) -> None:
    name = SPOT_POOL.partition("name: ")[2].split()[0].strip("{},")
    pod = POD.replace("metadata:", f"metadata:\n  annotations: {{spotgate.dev/node-pool: {name}t}}", 1)
    write("deploy/all.yaml", f"{pod}\n---\n{SPOT_POOL}")
    texts = [issue["description"] for issue in run("check", "-o", "gitlab", "deploy").json]
    assert any(f"did you mean `{name}`? Name one of these pools" in text for text in texts), texts
    assert not [text for text in texts if "?." in text]
