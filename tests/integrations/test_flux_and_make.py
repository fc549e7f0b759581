"""Flux and Make: what is applied is what the pipeline has judged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import GITOPS, REPOS

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(REPOS / "kustomize-overlays", tmp_path / "repo"))
    shutil.copytree(GITOPS / "flux", folder / "clusters")
    shutil.copy(GITOPS / "make/Makefile", folder)
    # Flux builds with its own kustomize, which runs no functions.
    production = folder / "overlays/prod/kustomization.yaml"
    production.write_text(production.read_text().partition("# What that takes")[0])
    return folder


@pytest.mark.parametrize(("overlay", "code", "said"), [("prod", 0, "no findings"), ("staging", 1, "1 deny")])
def test_what_flux_will_apply_is_judged(
    shell: Shell, repo: Path, kustomize: Path, overlay: str, code: int, said: str
) -> None:
    (repo / ".spotgate.yaml").write_text("state: [cluster]\n")
    flux = repo / "clusters/kustomization.yaml"
    flux.write_text(flux.read_text().replace("overlays/prod", f"overlays/{overlay}"))

    done = shell("bash clusters/validate.sh clusters", repo, kustomize)

    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(f"--- ./overlays/{overlay}\n")
    assert said in done.stdout


def test_make_judges_every_overlay(shell: Shell, repo: Path, kustomize: Path) -> None:
    done = shell("make -k check", repo, kustomize)
    assert done.returncode == 2
    assert "no findings" in done.stdout
    assert "deny  Deployment shop-staging/storefront  reserved-labels" in done.stdout
    assert "overlays/staging] Error 1" in done.stderr


def test_make_writes_into_the_base(shell: Shell, repo: Path) -> None:
    deployment = repo / "base/deployment.yaml"
    labelled = "        app.kubernetes.io/name: storefront\n        spotgate.dev/capacity: spot\n    spec:"
    deployment.write_text(
        deployment.read_text().replace("        app.kubernetes.io/name: storefront\n    spec:", labelled)
    )
    done = shell("make fix", repo)
    assert done.returncode == 0, done.stderr
    assert "terminationGracePeriodSeconds: 60" in deployment.read_text()
