"""Patches of kustomizations, which look like objects and are none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, SPOT_POOL

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


PATCH = SPOT_POOL  # a spot pool by itself is denied
POOLS = f"{SPOT_POOL}---\n{ON_DEMAND_POOL}"


@pytest.mark.parametrize(
    ("kustomization", "judged"),
    [
        ("patches: [{path: patch.yaml}]", []),
        ("patches: [{target: {kind: NodePool}, path: ./patch.yaml}]", []),
        ("patchesStrategicMerge: [patch.yaml]", []),
        ("patchesJson6902: [{target: {kind: NodePool, name: a, version: v1}, path: patch.yaml}]", []),
        ("kind: Component\npatches: [{path: patch.yaml}]", []),
        ("patches: [{patch: '- op: remove'}]", ["other"]),
        ("patches: [{path: other.yaml}]", ["other"]),
        ("patches: [{path: patch.yaml}]\nresources: [patch.yaml]", ["other"]),
        ("patches: {", ["other"]),
        ("patches: {path: patch.yaml}", ["other"]),
        ("resources: [other.yaml]\nnothing: [{path: patch.yaml}]", ["other"]),
    ],
)
@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_a_file_that_is_a_patch_is_no_object(
    run: Run, write: Write, kustomization: str, judged: list[str], name: str
) -> None:
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\n"
    write(f"app/{name}", head + ("" if "kind:" in kustomization else "kind: Kustomization\n") + kustomization)
    write("app/pools.yaml", ON_DEMAND_POOL)
    write("app/patch.yaml", PATCH.replace("gpu-spot", "other"))
    done = run("check", "-o", "json", "app")
    assert sorted({each["name"] for each in done.json["results"]} & {"other"}) == judged


def test_a_patch_that_is_named_is_known_by_the_kustomization_above_it(run: Run, write: Write) -> None:
    write("app/overlay/kustomization.yaml", "kind: Kustomization\npatches: [{path: patches/pool.yaml}]\n")
    patch = write("app/overlay/patches/pool.yaml", PATCH)
    assert run("check", "-o", "json", patch).json["summary"]["skipped"] == 1
    assert run("check", "-o", "json", patch.parent).json["summary"]["documents"] == 0


def test_a_patch_that_is_removed_deletes_no_object(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True)  # noqa: S607

    monkeypatch.chdir(write("repo/pools.yaml", POOLS).parent)
    Path("kustomization.yaml").write_text("kind: Kustomization\nresources: [pools.yaml]\npatches: [{path: p.yaml}]\n")
    Path("p.yaml").write_text(ON_DEMAND_POOL.replace("targetNodes: 2", "targetNodes: 3"))
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    git("checkout", "-q", "-b", "change")
    Path("kustomization.yaml").write_text("kind: Kustomization\nresources: [pools.yaml]\n")
    Path("p.yaml").unlink()
    done = run("check", "--no-render", "-o", "json", "--against", "main", ".")
    assert (done.code, done.json["results"]) == (0, [])
