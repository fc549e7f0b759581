"""``.spotgate.yaml``: where it is found, what it says, and what is said where it is wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import NODE, ON_DEMAND_POOL, POD, POLICIES, SPOT_POD, SPOT_POOL
from webhook.offline.project import ProjectFile

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


PROJECT = """\
policies: [policy]
state: [cluster/pools.yaml]
ignore: [testdata]
failOn: indeterminate
kubernetesVersion: "1.28"
"""


@pytest.fixture(autouse=True)
def project(write: Write) -> None:
    """Make a repository with a project file, and manifests two folders below it."""
    write("repo/.git/HEAD", "")
    write("repo/.spotgate.yaml", PROJECT)
    write("repo/policy/all.yaml", POLICIES)
    write("repo/cluster/pools.yaml", SPOT_POOL)
    write("repo/deploy/web/pod.yaml", POD.replace("example.com/team", "team"))
    write("repo/deploy/testdata/bad.yaml", "a: {")


def test_it_is_found_above_the_first_path_and_its_paths_are_relative_to_it(run: Run) -> None:
    done = run("check", "-o", "json", "repo/deploy")
    assert (done.code, done.json["results"], done.err) == (0, [], "")
    assert run("check", "-o", "json", Path("repo/deploy").resolve()).code == 0


def test_what_is_in_a_folder_that_it_ignores_is_left_out_where_it_is_named_too(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("repo/.spotgate.yaml", PROJECT.replace("[testdata]", "[./deploy/testdata]"))
    for file in ("repo/deploy/testdata/bad.yaml", Path("repo/deploy/testdata").resolve()):
        assert run("check", file, "repo/deploy/web").code == 0
    monkeypatch.chdir("repo/deploy/testdata")
    assert run("check", "bad.yaml", "../web").code == 0


def test_it_is_found_above_the_working_directory_where_standard_input_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("repo/deploy")
    done = run("check", "-o", "json", "-", stdin=POD.encode())
    assert done.outcomes == [("labels", "deny")]


@pytest.mark.parametrize("command", [("check", "-o", "json"), ("explain",), ("fix", "--diff")])
def test_every_command_that_judges_manifests_takes_it(run: Run, write: Write, command: tuple[str, ...]) -> None:
    write("repo/.spotgate.yaml", PROJECT.replace("policy]", "none]"))
    done = run(*command, "repo/deploy")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "repo/.spotgate.yaml:1:12: policies[0]: there is no 'none' next to this file; paths are relative to it\n"
    )


@pytest.mark.parametrize(
    ("says", "flags", "outcomes"),
    [
        pytest.param("policies: [policy]", [], [("fallback", "deny")], id="policies"),
        pytest.param("policies: [policy]", ["--policies", "labels.yaml"], [], id="policies, and a flag"),
        pytest.param("state: [more.yaml]", ["--policies", "repo/policy"], [], id="state"),
        pytest.param(
            "state: [more.yaml]",
            ["--policies", "repo/policy", "--state", "repo/cluster/pools.yaml"],
            [("fallback", "deny")],
            id="state, and a flag",
        ),
        pytest.param("partial: true", ["--policies", "repo/policy"], [("fallback", "indeterminate")], id="partial"),
        pytest.param("ignore: [pool.yaml]", ["--policies", "repo/policy"], [], id="a name to ignore"),
        pytest.param("ignore: [d/pool.yaml]", ["--policies", "repo/policy"], [], id="a path from the file to ignore"),
        pytest.param(
            "ignore: [pool.yaml]",
            ["--policies", "repo/policy", "--ignore", "x"],
            [("fallback", "deny")],
            id="ignore, and a flag",
        ),
    ],
)
def test_a_flag_takes_the_place_of_what_it_says(
    run: Run, write: Write, says: str, flags: list[str], outcomes: list[tuple[str, str]]
) -> None:
    write("repo/.spotgate.yaml", says)
    write("repo/more.yaml", ON_DEMAND_POOL)
    write("labels.yaml", POLICIES.split("---\n", maxsplit=1)[0])
    write("repo/d/pool.yaml", SPOT_POOL)
    assert run("check", "-o", "json", *flags, "repo/d").outcomes == outcomes


@pytest.mark.parametrize(("flags", "code"), [([], 1), (["--fail-on", "deny"], 0), (["--fail-on", "warn"], 0)], ids=str)
def test_what_fails_can_be_said_and_a_flag_wins(run: Run, write: Write, flags: list[str], code: int) -> None:
    write("repo/.spotgate.yaml", "failOn: indeterminate\npartial: true\npolicies: [policy]\n")
    assert run("check", *flags, write("repo/d/pool.yaml", SPOT_POOL)).code == code


@pytest.mark.parametrize(("flags", "native"), [([], False), (["--kubernetes-version", "1.34"], True)], ids=str)
def test_the_version_can_be_said_and_a_flag_wins(run: Run, write: Write, flags: list[str], *, native: bool) -> None:
    write("repo/.spotgate.yaml", 'kubernetesVersion: "1.27"\npolicies: [policy]\n')
    write("repo/d/pools.yaml", f"{SPOT_POOL}---\n{ON_DEMAND_POOL}---\n{SPOT_POD}")
    report = run("check", "-o", "json", *flags, "repo/d").json
    assert ('"sleep"' in str(report["patches"]).replace("'", '"')) == native or report["patches"] == []


def test_it_is_not_looked_for_above_the_root_of_the_repository(run: Run, write: Write) -> None:
    Path("repo/.spotgate.yaml").rename(".spotgate.yaml")
    write(".spotgate.yaml", "policies: [nowhere]")
    assert run("check", "repo/deploy/web").code == 0
    write("repo/deploy/.git", "gitdir: elsewhere\n")
    write("repo/.spotgate.yaml", "policies: [nowhere]")
    assert run("check", "repo/deploy/web").code == 0
    Path("repo/deploy/.git").unlink()
    assert run("check", "repo/deploy/web").code == 2


def test_the_one_in_the_documentation_is_a_good_one(run: Run, write: Write) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli" / "project-file.md").read_text()
    (example,) = re.findall(r"```yml\n(.*?)```", page, re.DOTALL)
    write("repo/.spotgate.yaml", example)
    overrides = "metadata: {name: termination}\nspec: {overrides: [graceful-termination]}"
    write("repo/policies/all.yaml", POLICIES.replace("metadata: {name: termination}\nspec: {}", overrides))
    write("repo/charts/web/Chart.yaml", "name: web")
    write("repo/values/web.yaml", "")
    assert run("check", "repo/deploy").code == 0
    fields = re.findall(r"^(\w+):", example, re.MULTILINE)
    assert fields == [field.alias for field in ProjectFile.model_fields.values()]


def test_an_empty_one_says_nothing(run: Run, write: Write) -> None:
    write("repo/.spotgate.yaml", "# nothing yet\n")
    assert run("check", "repo/deploy/web").code == 0


BROKEN: dict[str, tuple[str | bytes, list[str]]] = {
    "unknown field": ("policy: [a]", ["1:1: policy: unknown field `policy`, did you mean `policies`?"]),
    "flag for a name": ("fail-on: warn", ['1:1: ["fail-on"]: unknown field `fail-on`, did you mean `failOn`?']),
    "unknown word": (
        "failOn: denied",
        ["1:1: failOn: 'denied' is not one of deny, warn or indeterminate, did you mean `deny`?"],
    ),
    "version without quotes": (
        "# versions\nkubernetesVersion: 1.30",
        ['2:1: kubernetesVersion: write the version in quotes, as "1.34"; got 1.3'],
    ),
    "no version": (
        'kubernetesVersion: "latest"',
        ["1:1: kubernetesVersion: 'latest' is not a Kubernetes version; write it as 1.34"],
    ),
    "a letter in the version": (
        'kubernetesVersion: "1.2O"',
        ["1:1: kubernetesVersion: '1.2O' is not a Kubernetes version; write it as 1.34"],
    ),
    "text for a list": ("ignore: x", ["1:1: ignore: must be a list, got 'x'"]),
    "bad glob": ('ignore: ["[a"]', ["1:10: ignore[0]: '[a' opens a `[` that it does not close"]),
    "missing state": ("state: [x, z]", ["1:9: state[0]: there is no 'x'", "1:12: state[1]: there is no 'z'"]),
    "several mistakes": ("failOn: x\npartial: maybe", ["1:1: failOn: ", "2:1: partial: "]),
    "a list": ("- policies", ["1:1: is no mapping; write `policies: [...]`, for example"]),
    "two documents": ("{}\n---\n{}", ["3:1: is a second document; one says all"]),
    "broken YAML": ("policies: [", ["2:1: "]),
    "duplicate key": ("failOn: deny\nfailOn: warn", ['2:1: duplicate key "failOn", first at repo/.spotgate.yaml:1']),
    "UTF-16": ("failOn: deny".encode("utf-16"), ["1:1: the file is UTF-16"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_exit_code_2_with_its_lines_and_nothing_is_judged(run: Run, write: Write, case: str) -> None:
    text, says = BROKEN[case]
    write("repo/.spotgate.yaml", text)
    done = run("check", "repo/deploy/web")
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert len(lines) == len(says)
    for line, said in zip(lines, says, strict=True):
        assert line.startswith(f"repo/.spotgate.yaml:{said}")


def test_one_that_is_no_file_is_not_passed_over(run: Run) -> None:
    file = Path("repo/.spotgate.yaml")
    file.unlink()
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("gone")):
        make(file)
        done = run("check", "repo/deploy/web")
        assert (done.code, done.out) == (2, "")
        assert done.err == "repo/.spotgate.yaml: is not a readable file; correct it, or remove it\n"
        file.rmdir() if file.is_dir() else file.unlink()


def test_a_broken_one_lets_nothing_be_written(run: Run, write: Write) -> None:
    write("repo/.spotgate.yaml", "policy: [a]")
    file = write("repo/d/pod.yaml", f"{SPOT_POOL}---\n{NODE}---\n{SPOT_POD}")
    before = file.read_bytes()
    assert run("fix", file).code == 2
    assert file.read_bytes() == before


OUTSIDE = {
    "/etc/passwd": "is outside of this repository",
    "/dev/zero": "is outside of this repository",
    "../elsewhere": "is outside of this repository",
    "cluster/../../elsewhere/x.yaml": "is outside of this repository",
    "link": "is outside of this repository",
    "link.yaml": "is outside of this repository",
    "holds": "holds sub/link.yaml, a link out of this repository; remove it",
    "pipe": "is neither a regular file nor a folder",
    "\\0": "there is no ",
    "a" * 300: "there is no ",
}


@pytest.mark.parametrize("field", ["policies", "state"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_stay_in_the_repository(run: Run, write: Write, field: str, path: str) -> None:
    write("elsewhere/x.yaml", POLICIES)
    write("repo/holds/sub/x.yaml", POLICIES)
    Path("repo/link").symlink_to("../elsewhere")
    Path("repo/link.yaml").symlink_to("../elsewhere/x.yaml")
    Path("repo/holds/sub/link.yaml").symlink_to("/dev/zero")
    os.mkfifo("repo/pipe")
    write("repo/.spotgate.yaml", f'# a comment\n{field}: ["{path}"]\n')
    done = run("check", "repo/deploy/web")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"repo/.spotgate.yaml:2:{len(field) + 4}: {field}[0]: ")
    assert OUTSIDE[path] in done.err


def test_a_folder_of_the_repository_above_the_file_is_inside(run: Run, write: Write) -> None:
    write("repo/deploy/.spotgate.yaml", "policies: [../policy]\nstate: [../cluster]\n")
    Path("repo/policy/link.yaml").symlink_to("all.yaml")
    assert run("check", "repo/deploy/web").err.startswith("repo/policy/link.yaml:")  # twice the same names, not outside
    Path("repo/policy/link.yaml").unlink()
    assert run("check", "repo/deploy/web").code == 0


def test_the_file_itself_is_no_link_out_of_the_repository(run: Run, write: Write) -> None:
    write("project.yaml", PROJECT)
    Path("repo/.spotgate.yaml").unlink()
    Path("repo/.spotgate.yaml").symlink_to("../project.yaml")
    done = run("check", "repo/deploy/web")
    assert (done.code, done.out) == (2, "")
    assert done.err == "repo/.spotgate.yaml: is a link out of this repository; put the file itself here\n"
