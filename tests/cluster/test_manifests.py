"""Names and positions of objects in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webhook.inputs.objects import Manifest, Manifests, read_manifests

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, text: str) -> Manifests:
    (folder / "a.yaml").write_text(text)
    return read_manifests([folder / "a.yaml"])


def one(folder: Path, text: str) -> Manifest:
    (manifest,) = read(folder, text).objects
    return manifest


@pytest.mark.parametrize(
    ("api_version", "group", "version"),
    [
        ("v1", "", "v1"),
        ("apps/v1", "apps", "v1"),
        ("compute.coreweave.com/v1alpha1", "compute.coreweave.com", "v1alpha1"),
    ],
)
def test_api_version_is_group_and_version(tmp_path: Path, api_version: str, group: str, version: str) -> None:
    manifest = one(tmp_path, f"apiVersion: {api_version}\nkind: X\n")
    assert (manifest.group, manifest.version) == (group, version)


@pytest.mark.parametrize("metadata", ["", "metadata:\n", "metadata: {}\n", "metadata: {name: null, labels: null}\n"])
def test_missing_metadata_is_empty(tmp_path: Path, metadata: str) -> None:
    manifest = one(tmp_path, f"apiVersion: v1\nkind: X\n{metadata}")
    assert (manifest.name, manifest.namespace, manifest.shown_name, manifest.labels) == ("", "", "", {})


def test_a_null_label_is_empty_as_on_the_api_server(tmp_path: Path) -> None:
    assert one(tmp_path, "apiVersion: v1\nkind: X\nmetadata: {labels: {a: null, b: c}}\n").labels == {"a": "", "b": "c"}


def test_fields_in_lists_and_later_documents_have_lines(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: X
---
apiVersion: v1
kind: List
items:
  - kind: Other
    apiVersion: v1
    spec:
      a:
        - b
"""
    first, second = read(tmp_path, text).objects
    assert (first.line, second.line) == (1, 7)
    assert second.position_of(("spec", "a", 0))[0] == 11
    assert second.position_of(("spec", "missing"))[0] == 9
    assert str(second.problem(("spec", "a", 0), "is bad")) == f"{tmp_path}/a.yaml:11:11: spec.a[0]: is bad"


def test_items_of_a_typed_list_need_no_kind(tmp_path: Path) -> None:
    text = "apiVersion: apps/v1\nkind: DeploymentList\nitems: [{metadata: {name: a}}, {kind: Other, apiVersion: v1}]\n"
    kinds = [(item.api_version, item.kind) for item in read(tmp_path, text).objects]
    assert kinds == [("apps/v1", "Deployment"), ("v1", "Other")]


def test_a_kind_that_ends_in_list_may_be_an_object(tmp_path: Path) -> None:
    assert one(tmp_path, "apiVersion: x/v1\nkind: AllowList\nspec: {}\n").kind == "AllowList"


def test_nothing_raises_and_everything_readable_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("apiVersion: v1\nkind: X\n")
    (tmp_path / "bad.yaml").write_text("{apiVersion: v1, kind: X")
    manifests = read_manifests([tmp_path, tmp_path / "nowhere"])
    assert [item.kind for item in manifests.objects] == ["X"]
    assert [problem.file.removeprefix(f"{tmp_path}/") for problem in manifests.problems] == ["bad.yaml", "nowhere"]
