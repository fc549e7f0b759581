"""Flux and Make apply the manifests that the pipeline evaluated."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from examples.gitops.flux import validate
from tests.integrations.conftest import GITOPS, REPOS

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell


VALIDATE: Final = f"{sys.executable} {GITOPS}/flux/validate.py"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(REPOS / "kustomize-overlays", tmp_path / "repo"))
    shutil.copytree(GITOPS / "flux", folder / "clusters")
    shutil.copy(GITOPS / "make/Makefile", folder)
    # Flux builds with a built-in kustomize, which runs no functions.
    production = folder / "overlays/prod/kustomization.yaml"
    production.write_text(production.read_text().partition("# Adds the placement")[0])
    return folder


@pytest.mark.parametrize(("overlay", "code", "text"), [("prod", 0, "no findings"), ("staging", 1, "1 deny")])
def test_manifests_that_flux_applies_are_judged(
    shell: Shell, repo: Path, kustomize: Path, overlay: str, code: int, text: str
) -> None:
    (repo / ".spotgate.yaml").write_text("state: [cluster]\n")
    flux = repo / "clusters/kustomization.yaml"
    flux.write_text(flux.read_text().replace("overlays/prod", f"overlays/{overlay}"))

    done = shell(f"{VALIDATE} clusters", repo, kustomize)

    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(f"--- overlays/{overlay}\n")
    assert text in done.stdout


FLUX = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: x}\n"


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('spec:\n  path: "./overlays/staging"  # comment\n', ["overlays/staging"]),
        ("spec: {path: ./overlays/staging, prune: true}\n", ["overlays/staging"]),
        ("spec:\n    path: /overlays/staging/\n", ["overlays/staging"]),
        ("spec: {path: ./with a space}\n", ["with a space"]),
        ("spec: {prune: true}\n", ["."]),
        ("spec: {path: overlays/staging}\n---\n" + FLUX + "spec: {path: ''}\n", ["overlays/staging", "."]),
    ],
)
def test_every_spelling_of_a_path_is_recognized(text: str, paths: list[str]) -> None:
    assert list(validate.paths_in(f"{FLUX}{text}".encode())) == paths


def test_each_path_is_judged_once(shell: Shell, repo: Path, kustomize: Path) -> None:
    (repo / "with a space").mkdir()
    (repo / "with a space/kustomization.yaml").write_text("resources: [../overlays/staging]\n")
    shutil.rmtree(repo / "clusters")
    (repo / "clusters/b c").mkdir(parents=True)
    (repo / "clusters/a.yml").write_text(f"{FLUX}spec: {{path: overlays/staging}}\n")
    (repo / "clusters/b c/d e.yaml").write_text(f"{FLUX}spec: {{path: ./with a space}}\n")
    (repo / "clusters/template.yaml").write_text("{{ if }}\n")
    (repo / "elsewhere.yaml").write_text(f"{FLUX}spec: {{path: ./overlays/staging/}}\n")

    done = shell(VALIDATE, repo, kustomize)

    judged = [line[4:] for line in done.stdout.splitlines() if line.startswith("--- ")]
    assert judged == ["overlays/staging", "with a space"], done.stderr
    assert done.returncode == 1
    assert done.stdout.count("deny  Deployment shop-staging/storefront") == len(judged)


@pytest.mark.parametrize(
    ("files", "arguments", "error"),
    [
        ({}, "nowhere", "nowhere: no file contains a Kustomization of kustomize.toolkit.fluxcd.io/"),
        ({}, "overlays", "overlays: no file contains a Kustomization of "),
        ({"x.yaml": f"{FLUX}spec: {{path: gone}}\n"}, "clusters", "gone: kustomize can't build it"),
        ({"x.yaml": f"{FLUX}spec: {{path: [a]}}\n"}, "clusters", "clusters/x.yaml: can't be read: spec.path of a"),
        ({"x.yaml": f"{FLUX}spec: {{"}, "clusters", "clusters/x.yaml: can't be read: "),
    ],
)
def test_an_unjudged_flux_path_fails_the_run(
    shell: Shell, repo: Path, kustomize: Path, files: dict[str, str], arguments: str, error: str
) -> None:
    for name, text in files.items():
        (repo / "clusters" / name).write_text(text)
    done = shell(f"{VALIDATE} {arguments}", repo, kustomize)
    assert done.returncode == 2
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_make_judges_every_overlay(shell: Shell, repo: Path, kustomize: Path) -> None:
    done = shell("make -k check", repo, kustomize)
    assert done.returncode == 2
    assert "no findings" in done.stdout
    assert "deny  Deployment shop-staging/storefront  reserved-labels" in done.stdout
    assert "overlays/staging] Error 1" in done.stderr


def test_an_unbuildable_overlay_fails_make(shell: Shell, repo: Path, kustomize: Path) -> None:
    (repo / "build").write_text('#!/bin/sh\nkustomize build "$1" && [ "$1" != overlays/prod ] || exit 7\n')
    (repo / "build").chmod(0o755)
    (repo / "overlays/staging/kustomization.yaml").write_text("resources: [../../base]\n")
    done = shell("make -k check BUILD=./build", repo, kustomize)
    assert (done.returncode, done.stdout.count("no findings")) == (2, 2)
    assert "overlays/prod] Error 7" in done.stderr
    assert "overlays/staging] Error" not in done.stderr


def test_make_writes_into_the_base(shell: Shell, repo: Path) -> None:
    deployment = repo / "base/deployment.yaml"
    labelled = "        app.kubernetes.io/name: storefront\n        spotgate.dev/capacity: spot\n    spec:"
    deployment.write_text(
        deployment.read_text().replace("        app.kubernetes.io/name: storefront\n    spec:", labelled)
    )
    done = shell("make fix", repo)
    assert done.returncode == 0, done.stderr
    assert "terminationGracePeriodSeconds: 60" in deployment.read_text()
