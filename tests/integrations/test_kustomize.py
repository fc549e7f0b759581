"""``spotgate fn`` in the real kustomize, and in kpt."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integrations.conftest import REPOS

if TYPE_CHECKING:
    import subprocess

    from tests.integrations.conftest import Shell

BUILD = "kustomize build --enable-alpha-plugins --enable-exec overlays/prod"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Return an editable copy of the repository with overlays."""
    return Path(shutil.copytree(REPOS / "kustomize-overlays", tmp_path / "repo"))


def edit(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def pod_spec(built: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    (deployment,) = [item for item in yaml.safe_load_all(built.stdout) if item["kind"] == "Deployment"]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_the_build_includes_what_the_webhook_injects(shell: Shell, repo: Path, kustomize: Path) -> None:
    built = shell(BUILD, repo, kustomize)

    assert (built.returncode, built.stderr) == (0, "")
    assert pod_spec(built)["tolerations"] == [
        {"key": "shop.example/spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
        {"key": "qos.coreweave.cloud/interruptable", "operator": "Equal", "value": "true", "effect": "NoExecute"},
    ]
    assert "config.kubernetes.io" not in built.stdout
    checked = shell(f"{BUILD} | spotgate check --state cluster -", repo, kustomize)
    assert checked.stdout == "3 objects: no findings\n"  # nothing is left to inject


def test_a_finding_fails_the_build_with_a_reason(shell: Shell, repo: Path, kustomize: Path) -> None:
    edit(repo / "base/deployment.yaml", "    spec:\n", "        coreweave.cloud/team: shop\n    spec:\n")

    built = shell(BUILD, repo, kustomize)

    assert (built.returncode, built.stdout) == (1, "")
    assert "deny  Deployment shop/storefront  reserved-labels/reserved\n" in built.stderr
    assert "Fix: remove the label, or use your own domain, such as example.com/team\n" in built.stderr
    assert built.stderr.endswith("Error: couldn't execute function: exit status 1 \n")


def test_validate_changes_nothing(shell: Shell, repo: Path, kustomize: Path) -> None:
    edit(repo / "overlays/prod/spotgate.yaml", "mode: both", "mode: validate")
    built = shell(BUILD, repo, kustomize)
    assert built.returncode == 0
    assert pod_spec(built).keys() == {"containers"}


def test_a_mistake_in_the_configuration_fails_the_build(shell: Shell, repo: Path, kustomize: Path) -> None:
    edit(repo / "overlays/prod/spotgate.yaml", "mode: both", "mod: both")
    built = shell(BUILD, repo, kustomize)
    assert built.returncode == 1
    assert built.stderr.startswith("functionConfig: data.mod: unknown, did you mean `mode`?\n")


def test_kustomize_refuses_every_function_as_a_validator(shell: Shell, repo: Path, kustomize: Path) -> None:
    # docs/gitops.md has `mode: validate` under `transformers` because of kubernetes-sigs/kustomize#5036, until this fails.
    (repo / "overlays/prod/spotgate.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cat\n  annotations:\n"
        "    config.kubernetes.io/function: |\n      exec: {path: cat}\n"
    )
    edit(repo / "overlays/prod/kustomization.yaml", "transformers:", "validators:")
    built = shell(BUILD, repo, kustomize)
    assert built.returncode == 1
    assert "validator shouldn't modify the resource map" in built.stderr


# kpt

pytestmark = pytest.mark.skipif(shutil.which("kpt") is None, reason="kpt is not installed")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOS / "argo-apps", tmp_path / "package"))


def test_mutating_edits_the_files(shell: Shell, package: Path, tmp_path: Path) -> None:
    before = (package / "ml-platform/training.yaml").read_text()

    done = shell(
        'kpt fn eval ml-platform --exec "spotgate fn" -- mode=mutate state=cluster',
        package,
        environment={"HOME": str(tmp_path)},
    )

    assert done.returncode == 0, done.stderr
    after = (package / "ml-platform/training.yaml").read_text()
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []  # comments too
    assert "terminationGracePeriodSeconds: 270" in after
    assert "spotgate would inject" not in shell("spotgate check --state cluster ml-platform", package).stdout


def test_validating_reports_with_file_and_index(shell: Shell, package: Path, tmp_path: Path) -> None:
    done = shell(
        'kpt fn eval . --exec "spotgate fn" --results-dir results -- mode=validate',
        package,
        environment={"HOME": str(tmp_path)},
    )

    assert done.returncode == 1
    (function,) = yaml.safe_load((package / "results/results.yaml").read_text())["items"]
    denied = [result for result in function["results"] if result["severity"] == "error"]
    assert {"path": "cluster/node-pools.yaml", "index": 2} in [result["file"] for result in denied]
    assert {result["tags"]["policy"] for result in denied} == {"on-demand-fallback", "reserved-labels"}
