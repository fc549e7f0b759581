"""The GitHub Action: its definition is valid, and its steps do what it documents."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]

from tests.integrations.conftest import OFFLINE_PIP, REPOS, ROOT, copy_of_spotgate
from webhook import __version__

if TYPE_CHECKING:
    import subprocess

    from tests.integrations.conftest import Shell

ACTION: Final = ROOT / "action.yml"
DEFINITION: Final[dict[str, Any]] = yaml.safe_load(ACTION.read_text())
_EXPRESSION: Final = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOS / "argo-apps", tmp_path / "repo"))


@pytest.fixture
def runner(tmp_path: Path, shell: Shell) -> Path:
    """Return the runner's temporary folder, with spotgate installed."""
    program = tmp_path / "runner" / "spotgate" / "bin" / "spotgate"
    program.parent.mkdir(parents=True)
    program.symlink_to(shell.bin / "spotgate")
    return tmp_path / "runner"


def run_check(shell: Shell, runner: Path, repo: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the check step as the runner does with these inputs (dashes as underscores)."""
    (step,) = [step for step in DEFINITION["runs"]["steps"] if step.get("id") == "check"]
    given = {name: declared["default"] for name, declared in DEFINITION["inputs"].items()}
    given |= {name.replace("_", "-"): text for name, text in inputs.items()}
    environment = {name: _EXPRESSION.sub(lambda match: given[match[1]], text) for name, text in step["env"].items()}
    for name in ("output", "summary"):
        (runner / name).touch()
    environment |= {
        "RUNNER_TEMP": str(runner),
        "GITHUB_OUTPUT": str(runner / "output"),
        "GITHUB_STEP_SUMMARY": str(runner / "summary"),
    }
    return shell(step["run"], repo, environment=environment)


def test_definition_is_valid() -> None:
    assert not check_jsonschema(["--builtin-schema", "vendor.github-actions", str(ACTION)], standalone_mode=False)


def test_issue_forms_are_valid() -> None:
    forms = [str(form) for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if form.name != "config.yml"]
    assert not check_jsonschema(["--builtin-schema", "vendor.github-issue-forms", *forms], standalone_mode=False)


def test_every_expression_names_an_input_or_an_output_of_a_step() -> None:
    text = ACTION.read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == DEFINITION["inputs"].keys()
    assert set(re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text)) == {("check", "sarif"), ("check", "exit-code")}


def test_no_input_is_interpolated_into_a_script() -> None:  # a pull request's author could inject code
    assert not [step for step in DEFINITION["runs"]["steps"] if "${{" in step.get("run", "")]


def test_the_action_installs_its_own_version(shell: Shell, tmp_path: Path) -> None:
    (step,) = [step for step in DEFINITION["runs"]["steps"] if step.get("name") == "Install spotgate"]
    action = copy_of_spotgate(tmp_path / "action")
    (action / "requirements").mkdir()
    (action / "requirements/runtime.txt").touch()  # the real one is already installed
    environment = {"RUNNER_TEMP": str(tmp_path), "ACTION_PATH": str(action), "VERSION": ""}
    # Don't install pip, which takes three seconds: OFFLINE_PIP puts this environment's on the path.
    pip, python = tmp_path / "pip", tmp_path / "bin/python"
    python.parent.mkdir()
    pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
    python.write_text(f'#!/bin/sh\n{sys.executable} "$@" --without-pip && cp {pip} "$3/bin"\n')
    for program in (pip, python):
        program.chmod(0o755)

    done = shell(step["run"], tmp_path, python, environment={**OFFLINE_PIP, **environment})

    assert done.returncode == 0, done.stderr
    installed = shell("spotgate/bin/spotgate --version", tmp_path, environment=OFFLINE_PIP)
    assert installed.stdout == f"spotgate {__version__}\n"


def test_findings_are_annotations_a_summary_and_a_sarif_file(shell: Shell, runner: Path, repo: Path) -> None:
    done = run_check(shell, runner, repo)

    assert (done.returncode, done.stderr) == (1, "")
    assert "::error file=ml-platform/evaluation.yaml,line=14," in done.stdout
    summary = (runner / "summary").read_text()
    assert summary.startswith("### spotgate\n````\ncluster/node-pools.yaml:34  deny  NodePool gb200-spot")
    assert summary.endswith("would be changed\n\n````\n")
    output = dict(line.split("=", 1) for line in (runner / "output").read_text().splitlines())
    assert output == {"sarif": f"{runner}/spotgate.sarif", "exit-code": "1"}
    assert json.loads(Path(output["sarif"]).read_text())["runs"][0]["results"]


def test_paths_and_policies_are_lists_without_globs(shell: Shell, runner: Path, repo: Path) -> None:
    paths = "cluster/namespaces.yaml\nml-platform/raycluster.yaml"
    state = "cluster/node-pools.yaml cluster/namespaces.yaml"
    policies = f"{ROOT}/policies/spot-placement.yaml {ROOT}/policies/providers {ROOT}/policies/workloads.yaml"
    done = run_check(shell, runner, repo, paths=paths, state=state, policies=policies)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    assert "2 objects: no findings; 1 object would be changed" in (runner / "summary").read_text()


def test_the_failing_outcomes_are_configurable(shell: Shell, runner: Path, repo: Path) -> None:
    paths = "cluster ml-platform/notebook.yaml"
    (repo / "cluster/node-pools.yaml").write_text(
        (repo / "cluster/node-pools.yaml").read_text().partition("---\n# Sup")[0]
    )
    assert run_check(shell, runner, repo, paths=paths).returncode == 0
    assert run_check(shell, runner, repo, paths=paths, fail_on="warn").returncode == 1


def test_a_wrong_input_fails_the_job_and_uploads_nothing(shell: Shell, runner: Path, repo: Path) -> None:
    done = run_check(shell, runner, repo, fail_on="$(touch injected)")
    assert done.returncode == 2
    assert "invalid choice: '$(touch injected)'" in done.stderr
    assert (runner / "output").read_text() == "exit-code=2\n"
    assert (runner / "summary").read_text() == ""
    assert not (repo / "injected").exists()


def test_unreadable_files_are_reported_with_the_findings(shell: Shell, runner: Path, repo: Path) -> None:
    (repo / "broken.yaml").write_text("apiVersion: v1\nkind: Pod\na: [\n")
    done = run_check(shell, runner, repo)
    assert done.returncode == 2
    assert "broken.yaml:4:1: " in done.stderr
    summary = (runner / "summary").read_text()
    assert summary.index("deny  NodePool gb200-spot") < summary.index("can't be evaluated:\n  broken.yaml:4:1: ")
    assert "deny  NodePool gb200-spot" in summary
    assert ", 1 can't be evaluated; " in summary
    assert "sarif=" in (runner / "output").read_text()
