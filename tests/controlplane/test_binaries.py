"""The programs of the control plane are found or built once, or it is said why not."""

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.controlplane import binaries
from tests.controlplane.binaries import ALL, BinariesError, BuildError, GoMissingError, find_or_build
from tests.controlplane.conftest import without

if TYPE_CHECKING:
    from pathlib import Path

ETCD_AND_KWOK = ("etcd", "kwok")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and none of this machine's programs beside it."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that says what it builds in this file, one line each, and takes a moment."""
    log = tmp_path / "calls"
    log.touch()
    install_go(
        tmp_path,
        monkeypatch,
        f'while [ "$1" != -o ]; do shift; done; sleep 0.2; echo "$3" >> {log}; echo program > "$2"',
    )
    return log


def install_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")


def ignore(_line: str) -> None: ...


def test_programs_are_taken_from_kubebuilder_assets_if_all_are_there(
    cache: Path, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assets").mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    (tmp_path / "assets" / "etcd").touch()
    assert find_or_build(["etcd"], cache=cache) == {"etcd": tmp_path / "assets" / "etcd"}
    assert calls.read_text() == ""
    assert find_or_build(ETCD_AND_KWOK, cache=cache, say=ignore)["etcd"].is_relative_to(cache)


def test_what_is_built_is_found_from_then_on_without_go(
    cache: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = find_or_build(ETCD_AND_KWOK, cache=cache, say=ignore)
    assert {name: path.read_text() for name, path in built.items()} == {"etcd": "program\n", "kwok": "program\n"}
    monkeypatch.setenv("PATH", "")
    assert find_or_build(ETCD_AND_KWOK, cache=cache) == built
    assert calls.read_text().splitlines() == ["go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"]


def test_of_several_who_need_it_at_once_one_builds(cache: Path, calls: Path) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_or_build(["etcd"], cache=cache, say=said.append), range(4)))
    assert len({path["etcd"] for path in found}) == 1
    assert calls.read_text() == "go.etcd.io/etcd/server/v3\n"
    assert "waiting for another process that is building the control plane" in said


def test_a_failed_build_says_what_go_said_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_go(tmp_path, monkeypatch, "echo no space left on device >&2; exit 1")
    with pytest.raises(
        BuildError, match=r"^etcd v\S+ could not be built.* exited with 1. It said last:\nno space left"
    ):
        find_or_build(["etcd"], cache=cache, say=ignore)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_what_a_killed_build_left_is_cleared_away(cache: Path, calls: Path) -> None:
    (cache / ".building-abandoned").mkdir(parents=True)
    (built,) = find_or_build(["etcd"], cache=cache, say=ignore).values()
    assert sorted(path.name for path in cache.iterdir()) == sorted((built.parent.name, "lock"))
    assert calls.read_text()


def test_without_go_it_is_said_where_to_get_it(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(GoMissingError, match=r"there is no `go`: install Go 1\.26 or newer"):
        find_or_build(cache=cache)


def test_a_cache_that_can_not_be_written_is_named(cache: Path, calls: Path) -> None:
    with pytest.raises(BinariesError, match=r"no folder for .*calls/cache'; set XDG_CACHE_HOME"):
        find_or_build(cache=calls / cache.name, say=ignore)


@pytest.mark.parametrize("module", ALL, ids=lambda module: module.name)
def test_another_dependency_makes_another_key(
    module: binaries.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(binaries.MODULES, tmp_path / "modules")
    before = module.key
    monkeypatch.setattr(binaries, "MODULES", tmp_path / "modules")
    assert module.key == before
    with (tmp_path / "modules" / module.name / "go.sum").open("a") as sums:
        sums.write("example.com/new v1.0.0 h1:0=\n")
    assert module.key != before


def test_kubernetes_is_told_its_version() -> None:
    *_, ldflags = binaries.KUBERNETES.flags()
    stamps = dict(re.findall(r"-X k8s\.io/component-base/version\.(\w+)=(\S+)", ldflags))
    assert stamps == {"gitVersion": "v1.36.3", "gitMajor": "1", "gitMinor": "36"}


def test_without_the_programs_tests_are_skipped_but_fail_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Go"):
        without(BinariesError("no Go"))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Go"):
        without(BinariesError("no Go"))
