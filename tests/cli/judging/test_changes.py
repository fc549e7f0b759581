"""``--changed-since`` and ``--against``: what a branch changes, by the document, and what that does to the cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, POD, SPOT_POD, SPOT_POOL

if TYPE_CHECKING:
    from tests.cli.conftest import Check, Done, Run, Write


def git(*arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *arguments], check=True, capture_output=True)  # noqa: S607


def commit() -> None:
    git("add", "--all")
    git("commit", "--message=x", "--allow-empty")


def pod(name: str) -> str:
    return POD.replace("name: web", f"name: {name}")


def without_settings(patch: pytest.MonkeyPatch) -> None:
    """Let git read no settings of this machine."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        patch.setenv(name, os.devnull)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository whose branch has left main, with two files of Pods and one of pools."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "deploy").mkdir()
    (folder / "deploy/pods.yaml").write_text("---\n".join(map(pod, "abc")))
    (folder / "deploy/other.yaml").write_text(pod("other"))
    (folder / "deploy/pools.yaml").write_text(f"{SPOT_POOL}---\n{ON_DEMAND_POOL}")
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        patch.chdir(folder)
        git("init", "--initial-branch=main")
        commit()
        git("checkout", "-b", "branch")
    return folder


@pytest.fixture(autouse=True)
def repository(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    monkeypatch.chdir(shutil.copytree(template, tmp_path, dirs_exist_ok=True))


def names(done: Done) -> list[str]:
    return [result["name"] for result in done.json["results"]]


# --changed-since


def edit(file: str, old: str, new: str) -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def change_second_document() -> None:
    edit("deploy/pods.yaml", "name: b\n", "name: b  # changed\n")


@pytest.mark.parametrize("how", ["committed", "staged", "in the working tree"])
def test_only_documents_with_changed_lines_are_judged(check: Check, how: str) -> None:
    change_second_document()
    if how != "in the working tree":
        git("add", "--all")
    if how == "committed":
        commit()
    done = check("--changed-since", "main", "deploy")
    assert (names(done), done.json["summary"]["documents"]) == (["b"], 1)


def test_a_branch_that_changes_nothing_has_no_finding(check: Check) -> None:
    done = check("--changed-since", "main", "deploy")
    assert (done.code, done.json["summary"]["documents"]) == (0, 0)


def test_a_file_that_git_does_not_know_yet_is_new(check: Check, write: Write) -> None:
    write("deploy/new.yaml", pod("new"))
    write("deploy/ignored.yaml", pod("ignored"))
    write(".gitignore", "ignored.yaml\n")
    assert names(check("--changed-since", "main", "deploy")) == ["ignored", "new"]


def test_standard_input_is_new(check: Check) -> None:
    assert names(check("--changed-since", "main", "-", "deploy", stdin=pod("piped"))) == ["piped"]


def test_documents_that_are_only_moved_are_not_changed(check: Check) -> None:
    git("mv", "deploy/other.yaml", "deploy/renamed.yaml")
    Path("deploy/pods.yaml").write_text("---\n".join(map(pod, "ca")))
    Path("deploy/moved.yaml").write_text(f"# here now\n---\n{pod('b')}")
    assert names(check("--changed-since", "main", "deploy")) == []


def test_a_renamed_file_is_judged_where_it_was_changed(check: Check) -> None:
    git("mv", "deploy/pods.yaml", "deploy/renamed.yaml")
    edit("deploy/renamed.yaml", "name: c\n", "name: d\n")
    assert names(check("--changed-since", "main", "deploy")) == ["d"]


def test_what_main_did_since_is_no_change_of_the_branch(check: Check) -> None:
    change_second_document()
    commit()
    git("checkout", "main")
    edit("deploy/other.yaml", "busybox", "other")
    commit()
    git("checkout", "branch")
    assert names(check("--changed-since", "main", "deploy")) == ["b"]


def test_the_others_are_state(check: Check) -> None:
    edit("deploy/pools.yaml", "targetNodes: 2\n---", "targetNodes: 3\n---")
    done = check("--changed-since", "main", "deploy")
    assert (done.code, done.outcomes, done.json["summary"]["documents"]) == (0, [], 1)


def test_an_item_of_a_list_is_judged_where_it_was_changed(check: Check, write: Write) -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n" + "".join(
        "- " + pod(name).replace("\n", "\n  ").rstrip(" ") for name in "xy"
    )
    write("deploy/list.yaml", text)
    git("checkout", "main")
    commit()
    git("checkout", "-b", "next")
    edit("deploy/list.yaml", "name: y\n", "name: z\n")
    assert names(check("--changed-since", "main", "deploy")) == ["z"]
    edit("deploy/list.yaml", "items:\n", "# moved down, and changed by nobody\nitems:\n")
    assert names(check("--changed-since", "main", "deploy")) == ["z"]


def test_line_ends_that_git_converts_are_no_change(check: Check) -> None:
    edit("deploy/pods.yaml", "name: c\n", "name: d\n")
    Path("deploy/pods.yaml").write_text(Path("deploy/pods.yaml").read_text(), newline="\r\n")
    assert names(check("--changed-since", "main", "deploy")) == ["d"]


def test_what_could_not_be_read_where_the_branch_left_is_new_now(check: Check, write: Write) -> None:
    write("deploy/bad.yaml", f"{pod('bad')}---\na: {{")
    git("checkout", "main")
    commit()
    git("checkout", "-b", "next")
    write("deploy/bad.yaml", pod("bad"))
    done = check("--changed-since", "main", "deploy")
    assert (done.code, names(done)) == (1, ["bad"])
    assert done.err.startswith("warning: where the branch left main: deploy/bad.yaml:12:1: ")


def test_patches_too_are_only_for_what_has_changed(run: Run, check: Check, write: Write, policies: Path) -> None:
    write("deploy/spot.yaml", f"{SPOT_POD}---\n{SPOT_POD.replace('trainer', 'second')}")
    git("checkout", "main")
    commit()
    git("checkout", "-b", "next")
    edit("deploy/spot.yaml", "name: second", "name: third")
    assert [patch["name"] for patch in check("--changed-since", "main", "deploy").json["patches"]] == ["third"]
    assert run("fix", "--policies", policies, "--changed-since", "main", "deploy").out == "deploy/spot.yaml: changed\n"
    assert Path("deploy/spot.yaml").read_text().startswith(SPOT_POD)


def test_a_link_is_what_it_leads_to(check: Check) -> None:
    Path("linked").symlink_to("deploy")
    change_second_document()
    assert names(check("--changed-since", "main", "linked")) == ["b"]


# --against


def test_existing_objects_are_updated_and_others_created(check: Check, write: Write) -> None:
    change_second_document()  # the label that it may not have, it has had before
    write("deploy/new.yaml", pod("new"))
    done = check("--against", "main", "deploy")
    assert names(done) == ["new"]


@pytest.mark.parametrize("move", ["within the file", "to another file"])
def test_an_object_is_the_same_wherever_it_is(check: Check, write: Write, move: str) -> None:
    changed = pod("a").replace("busybox", "other")
    if move == "within the file":
        write("deploy/pods.yaml", "---\n".join([pod("b"), pod("c"), changed]))
    else:
        write("deploy/pods.yaml", "---\n".join([pod("b"), pod("c")]))
        write("deploy/moved.yaml", changed.replace("metadata:", "metadata:\n  namespace: default"))
    assert names(check("--against", "main", "deploy")) == []


@pytest.mark.parametrize("how", ["document", "file", "folder"])
def test_a_removed_object_is_deleted_where_it_was(check: Check, write: Write, how: str) -> None:
    if how == "document":
        write("deploy/pools.yaml", SPOT_POOL)
    else:
        write("deploy/spot/pool.yaml", SPOT_POOL)
        write("deploy/old/pool.yaml", f"# the fallback\n{ON_DEMAND_POOL}")
        Path("deploy/pools.yaml").unlink()
        git("checkout", "main")
        commit()
        git("checkout", "-b", "next")
        Path("deploy/old/pool.yaml").unlink()
        if how == "folder":
            Path("deploy/old").rmdir()
    done = check("--against", "main", "deploy")
    (result,) = done.json["results"]
    assert (result["policy"], result["outcome"], result["name"]) == ("fallback", "deny", "gpu")
    assert result["detail"].startswith("The files have it no longer: merging deletes it.\n")
    assert (result["file"], result["line"]) == (("deploy/pools.yaml", 10) if how == "document" else ("deploy/old/pool.yaml", 2))  # fmt: skip


def test_pools_that_are_removed_together_need_nothing(check: Check) -> None:
    Path("deploy/pools.yaml").unlink()
    done = check("--against", "main", "--fail-on", "indeterminate", "deploy")
    assert (done.code, done.outcomes) == (0, [])


@pytest.mark.parametrize("known", [True, False])
def test_an_object_that_moved_out_of_the_paths_is_not_deleted(check: Check, write: Write, known: bool) -> None:  # noqa: FBT001
    write("deploy/pools.yaml", SPOT_POOL)
    write("clusters/pools.yaml", f"# moved\n---\n{ON_DEMAND_POOL}")
    if known:
        commit()
    done = check("--against", "main", "deploy")
    assert done.json["summary"]["documents"] == 5
    assert done.err == (
        "deploy/pools.yaml:10: warning: NodePool gpu is at clusters/pools.yaml:3 now, outside of what was given, and is "
        "not judged; pass that file too\n"
    )
    assert check("--against", "main", "deploy", "clusters").err == ""
    assert check("--against", "main", "deploy", "--ignore", "clusters").outcomes == [("fallback", "deny")]


def test_what_was_ignored_is_not_missed(check: Check, write: Write) -> None:
    write("deploy/pools.yaml", SPOT_POOL)
    assert check("--against", "main", "--ignore", "pools.yaml", "deploy").outcomes == []
    assert check("--against", "main", "deploy/pods.yaml").outcomes == []
    assert check("--against", "main", "deploy/pools.yaml").outcomes == [("fallback", "deny")]


def test_what_can_not_be_read_now_is_not_taken_for_removed(check: Check, write: Write) -> None:
    write("deploy/pools.yaml", f"{SPOT_POOL}---\na: {{")
    done = check("--against", "main", "deploy")
    assert (done.code, done.outcomes) == (2, [])
    assert done.err.startswith("deploy/pools.yaml:11:1: ")


def test_what_main_added_since_is_not_removed_by_the_branch(check: Check, write: Write) -> None:
    git("checkout", "main")
    write("deploy/more.yaml", ON_DEMAND_POOL.replace("name: gpu", "name: more"))
    commit()
    git("checkout", "branch")
    assert check("--against", "main", "deploy").outcomes == []


def test_both_together_judge_what_has_changed_by_what_it_was(check: Check, write: Write) -> None:
    write("deploy/pools.yaml", SPOT_POOL)
    edit("deploy/pods.yaml", "name: b\n", "name: b  # changed\n")
    edit("deploy/pods.yaml", "name: c\n", "name: d\n")
    done = check("--against", "main", "--changed-since", "main", "deploy")
    assert names(done) == ["d", "gpu"]
    assert done.json["summary"]["documents"] == 4  # b, d, and the two that are no longer there


# what can't be done

FLAGS = ["--changed-since", "--against"]


@pytest.mark.parametrize("flag", FLAGS)
def test_an_unknown_commit_is_said(check: Check, flag: str) -> None:
    for ref in ("nowhere", "-x", "--output=x", ""):
        done = check(f"{flag}={ref}", "deploy")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"error: {flag}: Git knows no commit {ref!r} in ")
        assert "`git fetch` it first" in done.err


@pytest.mark.parametrize("flag", FLAGS)
def test_a_folder_that_is_in_no_repository_is_said(
    check: Check, flag: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("plain")
    done = check(flag, "main", folder)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {flag} needs the Git repository that {folder} is in: fatal: not a git repo")


def test_a_shallow_clone_without_the_common_commit_is_said(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    change_second_document()
    commit()
    git("checkout", "main")
    edit("deploy/other.yaml", "busybox", "other")
    commit()
    git("clone", "--depth=1", "--no-single-branch", f"file://{Path.cwd()}", "clone")
    monkeypatch.chdir("clone")
    done = check("--changed-since", "origin/branch", "deploy")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --changed-since: origin/branch and HEAD have no commit in common here")
    assert "git fetch --unshallow" in done.err


def test_histories_that_have_nothing_in_common_are_said(check: Check) -> None:
    git("checkout", "--orphan", "alone")
    change_second_document()
    commit()
    done = check("--against", "main", "deploy")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --against: main and HEAD have no commit in common here; name a branch")


def test_git_that_is_not_there_is_said(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = check("--changed-since", "main", "deploy")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: `git` is not installed, or not in PATH; install it, or do without\n"


def test_flags_that_contradict_each_other_are_refused(check: Check) -> None:
    assert "not allowed with argument --operation" in check("--operation", "UPDATE", "--against", "main", "deploy").err
    assert "--against and --kubeconfig both say" in check("--kubeconfig", "x", "--against", "main", "deploy").err


def test_a_hook_that_git_runs_gets_the_same_answer(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    change_second_document()
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    monkeypatch.chdir("deploy")
    assert names(check("--changed-since", "main", ".")) == ["b"]


def test_names_of_all_kinds_are_found(check: Check, write: Write) -> None:
    for name in ("é ü.yaml", 'a"b\\c.yaml', "-x.yaml", "new\nline.yaml"):
        write(f"deploy/odd/{name}", pod("odd"))
    git("checkout", "main")
    commit()
    git("checkout", "-b", "next")
    assert names(check("--changed-since", "main", "deploy")) == []
    assert json.dumps(check("--against", "main", "deploy").json["results"]) == "[]"
