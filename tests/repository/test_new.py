"""What `python -m tests.new` writes is complete and works."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

import webhook.rules
from tests.new import __main__ as new
from tests.rules.cases import CaseFile, judged, shown
from webhook import formats as output
from webhook.commands import main
from webhook.engine import bundle
from webhook.engine.findings import FindingText

ROOT = Path(__file__).parents[2]
RUFF = Path(sys.executable).with_name("ruff")
IDENTITY = ["-c", "user.name=jane", "-c", "user.email=jane@example.com"]
FIRST_PARTY = "lint.isort.known-first-party=['tests', 'webhook']"
DENIED = ROOT / "examples/deployment-misspelt-qos-label.yaml"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files to which lines are added, in which the program writes."""
    for file in {
        file for lines in (ROOT / "tests" / "new").glob("*/lines.yaml") for file in yaml.safe_load(lines.read_text())
    }:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setattr(new, "ROOT", tmp_path)
    return tmp_path


def test_a_policy_kind_is_discovered_and_its_cases_pass(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new.main(["policy-kind", "ZoneSpread"])
    rules = root / "webhook" / "rules"
    folder = rules / "zone_spread"
    msgspec.convert(yaml.safe_load((folder / "findings.yaml").read_text()), dict[str, FindingText])
    monkeypatch.setattr(webhook.rules, "__path__", [*webhook.rules.__path__, str(rules)])
    bundle.policy_kinds.cache_clear()
    try:
        for example in CaseFile(folder / "cases.yaml").examples():
            findings = judged(example, root)[1].findings
            assert [shown(*pair) for pair in zip(findings, example.expect, strict=True)] == example.expect
        training = str(ROOT / "examples/training-job.yaml")
        assert main(["check", training, "--policies", str(folder / "example.yaml"), "--fail-on=warn"]) == 1
        shutil.copytree(ROOT / "examples/policies/tests/state", root / "examples/policies/tests/state")
        assert main(["test", str(root / "examples/policies")]) == 0
    finally:
        bundle.policy_kinds.cache_clear()
        for module in [name for name in sys.modules if name.startswith("webhook.rules.zone_spread")]:
            sys.modules.pop(module, None)
    assert "zone-spread/missing" in capsys.readouterr().out
    assert "- The policy kind `ZoneSpread`.\n" in (root / "CHANGELOG.md").read_text()


def test_a_format_is_discovered(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new.main(["format", "rows"])
    capsys.readouterr()
    monkeypatch.setattr(output, "__path__", [*output.__path__, str(root / "webhook" / "formats")])
    monkeypatch.setattr(output, "FORMATS", (*output.FORMATS, "rows"))
    try:
        assert main(["check", "-o", "rows", str(DENIED)]) == 1
    finally:
        sys.modules.pop("webhook.formats.rows", None)
    row = capsys.readouterr().out.splitlines()[2]
    assert row.startswith(f"| examples/{DENIED.name}:19 | deny `reserved-labels/reserved` | ")


def test_a_provider_passes_its_policy_tests(root: Path) -> None:
    shutil.copytree(ROOT / "policies", root / "policies", dirs_exist_ok=True)
    new.main(["provider", "nimbus"])
    for name in ("nimbus", "clouds"):
        tests = str(root / "policies" / "tests" / f"{name}.yaml")
        assert main(["test", tests, "--policies", str(root / "policies")]) == 0
    assert "nimbus" in (root / "policies" / "tests" / "clouds.yaml").read_text()


@pytest.mark.skipif(not RUFF.exists(), reason="`make check` installs ruff")
@pytest.mark.parametrize(("what", "name"), [("policy-kind", "ZoneSpread"), ("policy-kind", "Able"), ("format", "rows")])
def test_ruff_finds_nothing(root: Path, what: str, name: str) -> None:
    new.main([what, name])
    for package in ("formats", "rules"):
        (root / "webhook" / package).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "webhook" / package / "__init__.py", root / "webhook" / package)
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [RUFF, *arguments, "--no-cache", "--config", FIRST_PARTY, root], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def contents(root: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in root.rglob("*") if file.is_file() and ".git" not in file.parts}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["format", "rows"], "test_rows.py exists: choose another name"),
        (
            ["policy-kind", "zoneSpread"],
            "'zoneSpread' can't be the name of a policy-kind: use up to four capitalized words",
        ),
        (["provider", "acme"], "and not acme, which the examples use"),
        (
            ["policy-kind", "CapacityProvider"],
            "policy files already have the kind CapacityProvider: choose another name",
        ),
        (["policy-kind", "SpotPlacement"], "policy files already have the kind SpotPlacement: choose another name"),
        (["policy-kind", "Policytest"], "policy files already have the kind PolicyTest: choose another name"),
    ],
)
def test_a_file_that_exists_or_a_wrong_name_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    new.main(["format", "rows"])
    before = contents(root)
    with pytest.raises(SystemExit):
        new.main(arguments)
    assert contents(root) == before
    assert says in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("arguments", [["policy-kind", "ZoneSpread"], ["provider", "nimbus"], ["format", "rows"]])
def test_the_printed_commands_undo_it(root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    before = contents(root)
    for command in (["init", "--quiet"], ["add", "."], [*IDENTITY, "commit", "--quiet", "--message=all"]):
        subprocess.run(["git", *command], cwd=root, check=True)  # noqa: S607 - wherever it is
    new.main(arguments)
    assert contents(root) != before
    for line in capsys.readouterr().out.splitlines()[-2:]:
        subprocess.run(shlex.split(line), cwd=root, check=True, capture_output=True)
    assert contents(root) == before
