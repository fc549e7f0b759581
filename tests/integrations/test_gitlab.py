"""The GitLab CI/CD component: its definition is valid, and its job writes the reports that it declares."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]

from tests.integrations.conftest import REPOS, ROOT

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell

TEMPLATE: Final = ROOT / "templates" / "spotgate.yml"
_INPUT: Final = re.compile(r"\$\[\[ inputs\.([\w-]+) \]\]")


def header() -> dict[str, Any]:
    inputs: dict[str, Any] = next(yaml.safe_load_all(TEMPLATE.read_text()))["spec"]["inputs"]
    return inputs


def pipeline(**inputs: str) -> str:
    """Return the pipeline with these inputs (dashes as underscores), rendered as in GitLab."""
    given = {name: str(declared["default"]) for name, declared in header().items()}
    given |= {name.replace("_", "-"): text for name, text in inputs.items()}
    return _INPUT.sub(lambda match: given[match[1]], TEMPLATE.read_text().partition("\n---\n")[2])


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOS / "argo-apps", tmp_path / "repo"))


def test_definition_is_valid(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text(pipeline())
    assert not check_jsonschema(
        ["--builtin-schema", "vendor.gitlab-ci", str(tmp_path / ".gitlab-ci.yml")], standalone_mode=False
    )


def test_every_input_is_used_and_has_a_default() -> None:
    assert set(_INPUT.findall(TEMPLATE.read_text())) == header().keys()
    assert all({"description", "default"} <= declared.keys() for declared in header().values())


def test_job_fails_on_a_denial_and_writes_its_reports(shell: Shell, repo: Path) -> None:
    job = yaml.safe_load(pipeline(arguments="--state cluster", paths="ml-platform"))["spotgate"]

    done = shell("\n".join(job["script"]), repo)

    assert done.returncode == 1
    assert "deny  CronJob research/nightly-evaluation" in done.stdout
    reports = job["artifacts"]["reports"]
    issues = json.loads((repo / reports["codequality"]).read_text())
    assert issues[0] == {
        "description": issues[0]["description"],
        "check_name": "reserved-labels/reserved",
        "fingerprint": issues[0]["fingerprint"],
        "severity": "critical",
        "location": {"path": "ml-platform/evaluation.yaml", "lines": {"begin": 14}},
    }
    assert ET.parse(repo / reports["junit"]).getroot().tag == "testsuites"  # noqa: S314 - our own
    assert job["artifacts"]["when"] == "always"


def test_job_passes_without_a_denial(shell: Shell, repo: Path) -> None:
    job = yaml.safe_load(pipeline(paths="ml-platform/raycluster.yaml", arguments="--state cluster"))["spotgate"]
    done = shell("\n".join(job["script"]), repo)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((repo / "gl-code-quality-report.json").read_text()) == []
