"""examples/policies is consistent with its page, and spotgate reports mistakes in a copy of it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import run  # noqa: F401 - a fixture
from tests.docs.pages import assert_shown, commands
from webhook.commands import main
from webhook.engine.bundle import document_kinds, load_bundle
from webhook.policy.document import FACTS, policy_files

if TYPE_CHECKING:
    from tests.cli.conftest import Run

POLICIES = Path(__file__).parents[2] / "examples" / "policies"
PAGE = (POLICIES / "README.md").read_text()
COMMANDS = commands(POLICIES / "README.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the policies, next to the files that the page shows."""
    shutil.copytree(POLICIES, tmp_path / "policies")
    for name, text in re.findall(r"^`([\w-]+\.yaml)`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "policies"


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[command for command, _ in COMMANDS])
@pytest.mark.usefixtures("folder")
def test_a_command_prints_the_output_on_the_page(run: Run, command: str, expected: str) -> None:  # noqa: F811
    done = run(*shlex.split(command)[1:])
    assert done.err == ""
    assert_shown(expected, done.out)


def test_the_page_lists_every_file_with_its_kinds() -> None:
    files = {str(file.relative_to(POLICIES)) for file in policy_files([POLICIES])}
    rows = dict(re.findall(r"^\| \[`(.*?)`\]\(.*?\) \| (.*?) \|", PAGE, re.MULTILINE))
    assert rows.keys() == files
    for name, kinds in rows.items():
        file_kinds = dict.fromkeys(re.findall(r"^kind: (.*)", (POLICIES / name).read_text(), re.MULTILINE))
        assert kinds == ", ".join(file_kinds)


def test_every_file_starts_with_its_purpose() -> None:
    for file in policy_files([POLICIES]):
        first, second, third, *_ = file.read_text().splitlines()
        assert first.startswith("# yaml-language-server: $schema="), file
        assert second.startswith(("# Protects ", "# Owned by ")), file
        assert third.startswith("# "), file


def test_the_examples_have_every_policy_kind_and_full_coverage(run: Run) -> None:  # noqa: F811
    done = run("test", POLICIES, "--coverage", "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert {policy["policy"]: policy["unreached"] for policy in done.json["coverage"] if policy["unreached"]} == {}
    assert {document.kind for document in load_bundle([POLICIES]).documents} == document_kinds().keys() - {"Mode"}
    assert {row["kind"] for row in done.json["coverage"]} == document_kinds().keys() - FACTS - {"Exemption", "Mode"}


# A correct text in a file, a wrong one to replace it, and the expected message.
MISTAKES = [
    ("gpu-requests.yaml", "kind: Validation", "kind: Validaton", "5:1: kind: unknown kind 'Validaton', did you mean `Validation`?"),
    ("gpu-requests.yaml", "resources: [pods]", "resources: [pod]", "11:39: spec.match.resourceRules[0].resources[0]: warning: never matches: Kubernetes has no resource pod in API group '', did you mean `pods`?"),
    ("gpu-requests.yaml", "variables.gpus in params.sizes", "variables.gpu in params.sizes", "25:7: spec.validations[0].expression: there is no `variables.gpu`, did you mean `variables.gpus`?"),
    ("gpu-requests.yaml", "variables.gpus in params.sizes", "variables.gpus in params.size", "25:7: spec.validations[0].expression: there is no `params.size`, did you mean `sizes`?"),
    ("gpu-requests.yaml", "variables.gpus in params.sizes", "object.spec.containers.al(c, has(c.image))", "25:7: spec.validations[0].expression: there is no `al`, did you mean `all`?"),
    ("images.yaml", 'exclude: ["sandbox-*"]', 'exclude: ["sandbox-["]', "12:28: spec.match.namespaces.exclude[0]: 'sandbox-[' opens a `[` that it does not close"),
    ("images.yaml", '"argocd:argocd-application-controller"', '"system:serviceaccount:argocd:argocd"', "33:25: spec.exempt[0].serviceAccounts[0]: expected namespace:name, without a prefix; got 'system:serviceaccount:argocd:argocd'"),
    ("images.yaml", "[^:/]+$", "[^:/+$", "23:7: spec.variables[2].expression: invalid regular expression: missing ]: [^:/+$"),
    ("spot-pods.yaml", "provider: gke", "provider: gcp", "11:3: spec.provider: there is no CapacityProvider `gcp`; available: "),
    ("node-pools.yaml", "{cks: same-type}", "{ckss: same-type}", "63:23: spec.requireByProvider.ckss: there is no CapacityProvider 'ckss', did you mean `cks`?"),
    ("exemptions/ranking.yaml", "[production-on-spot,", "[production-on-spott,", "10:14: spec.policies[0]: no policy is named production-on-spott, did you mean `production-on-spot`?"),
    ("exemptions/ranking.yaml", "expires: 2099-06-30", "expires: 30.06.2099", "14:3: spec.expires: expected a date such as 2027-01-31, got '30.06.2099'"),
    ("exemptions/ranking.yaml", "expires: 2099-06-30", "expires: 2025-06-30", "14:3: spec.expires: warning: the exemption ended on 2025-06-30"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "right", "wrong", "message"), MISTAKES, ids=[f"{file} {wrong}" for file, _, wrong, _ in MISTAKES]
)
def test_a_mistake_is_reported_with_its_position_and_a_fix(
    run: Run,  # noqa: F811
    folder: Path,
    file: str,
    right: str,
    wrong: str,
    message: str,
) -> None:
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong, 1))
    done = run("check", "--policies", "policies", "train.yaml")
    assert f"policies/{file}:{message}" in done.err


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_of_two_deployments_with_one_budget_only_one_is_placed_on_spot(capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / "on-demand-floor" / "two-capacities.yaml"
    assert main(["check", "-o", "json", str(file), "--state", str(EXAMPLES / "state")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["results"] == []
    (patched,) = report["patches"]
    selectors = [change["value"] for change in patched["patch"] if change["path"].endswith("/nodeSelector")]
    assert (patched["name"], selectors) == ("checkout-spot", [{"compute.coreweave.com/node-pool": "cpu-spot"}])
