"""``.spotgate.yaml``: its location, its content, and its errors."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import POD, POLICIES, SPOT_POOL
from webhook.inputs.project import ProjectFile

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


def test_the_documented_project_file_is_valid(run: Run, write: Write) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli" / "project-file.md").read_text()
    (example,) = re.findall(r"```yml\n(.*?)```", page, re.DOTALL)
    write("repo/.spotgate.yaml", example)
    overrides = "metadata: {name: termination}\nspec: {overrides: [graceful-termination]}"
    write("repo/policies/all.yaml", POLICIES.replace("metadata: {name: termination}\nspec: {}", overrides))
    write("repo/charts/web/Chart.yaml", "name: web")
    write("repo/values/web.yaml", "")
    assert run("check", "repo/deploy").code == 0
    fields = re.findall(r"^(\w+):", example, re.MULTILINE)
    assert fields == list(ProjectFile.__struct_encode_fields__)


def test_a_misnamed_project_file_is_an_error_that_names_the_right_name(run: Run, write: Write) -> None:
    write("repo/deploy/.spotgate.yml", PROJECT)
    done = run("check", "repo/deploy/web")
    problem = "repo/deploy/.spotgate.yml: the project file has another name; rename it to .spotgate.yaml\n"
    assert (done.code, done.out, done.err) == (2, "", problem)
    write("repo/deploy/.spotgate.yaml", "policies: [../policy]")
    assert run("check", "repo/deploy/web").code == 0


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
