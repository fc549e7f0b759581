"""The programs of the control plane are found or built once, or it is said why not."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.assets import kubernetes_module
from tests.programs import without
from webhook.rehearse.controlplane import binaries, images
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build

if TYPE_CHECKING:
    from pathlib import Path

ETCD_AND_KWOK = ("etcd", "kwok")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, and none of this machine's programs beside it."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spotgate" / "controlplane"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines about work that takes long, as they come."""
    lines: list[str] = []
    monkeypatch.setattr(binaries, "report", lines.append)
    return lines


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a `go` that says what it builds in this file, one line each."""
    log = tmp_path / "calls"
    log.touch()
    install_go(
        tmp_path,
        monkeypatch,
        f'while [ "$1" != -o ]; do shift; done; echo "$3" >> {log}; echo program > "$2"; chmod +x "$2"',
    )
    return log


def install_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")


def test_programs_are_taken_from_kubebuilder_assets_if_all_are_there(
    cache: Path, calls: Path, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assets").mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    (tmp_path / "assets" / "etcd").touch(mode=0o755)
    assert find_or_build(["etcd"]) == {"etcd": tmp_path / "assets" / "etcd"}
    assert calls.read_text() == ""
    assert find_or_build(ETCD_AND_KWOK)["etcd"].is_relative_to(cache)
    assert said[0] == f"KUBEBUILDER_ASSETS is not used: {tmp_path}/assets lacks some of etcd, kwok"


@pytest.mark.usefixtures("cache")
def test_what_is_built_is_found_from_then_on_without_go(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = find_or_build(ETCD_AND_KWOK)
    assert {name: path.read_text() for name, path in built.items()} == {"etcd": "program\n", "kwok": "program\n"}
    monkeypatch.setenv("PATH", "")
    assert find_or_build(ETCD_AND_KWOK) == built
    assert calls.read_text().splitlines() == ["go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"]


@pytest.mark.usefixtures("cache")
def test_of_several_who_need_it_at_once_one_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, waited_for = tmp_path / "calls", tmp_path / "waited for"
    install_go(
        tmp_path,
        monkeypatch,
        f'while [ "$1" != -o ]; do shift; done; while ! [ -e "{waited_for}" ]; do sleep 0.02; done; '
        f'echo "$3" >> {log}; echo program > "$2"; chmod +x "$2"',
    )

    def say(line: str) -> None:
        if line == "waiting for another process that is building programs":
            waited_for.touch()

    monkeypatch.setattr(binaries, "report", say)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_or_build(["etcd"]), range(4)))
    assert len({path["etcd"] for path in found}) == 1
    assert log.read_text() == "go.etcd.io/etcd/server/v3\n"


def test_a_failed_build_says_what_go_said_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install_go(tmp_path, monkeypatch, "echo no space left on device >&2; exit 1")
    with pytest.raises(BinariesError, match=r"^etcd v\S+ could not be built.* exited with 1; see its output above"):
        find_or_build(["etcd"])
    assert capfd.readouterr().err.endswith("\nno space left on device\n")
    assert [path.name for path in cache.iterdir()] == ["lock"]


@pytest.mark.usefixtures("cache")
def test_a_build_that_breaks_off_goes_on_with_what_is_not_there(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_go(
        tmp_path,
        monkeypatch,
        'while [ "$1" != -o ]; do shift; done; case $2 in */kubectl) exit 1;; esac; echo program > "$2"; chmod +x "$2"',
    )
    for built in (4, 1):
        said.clear()
        with pytest.raises(BinariesError, match=r"^kubectl v\S+ could not be built"):
            find_or_build(["kube-apiserver"])
        assert len(said) == built


@pytest.mark.usefixtures("cache")
def test_without_go_it_is_said_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BinariesError, match=r"there is no `go`: install Go 1\.26 or newer"):
        find_or_build()


def test_kubernetes_is_told_its_version() -> None:
    *_, ldflags = binaries.KUBERNETES.flags()
    stamps = dict(re.findall(r"-X k8s\.io/component-base/version\.(\w+)=(\S+)", ldflags))
    assert stamps == {"gitVersion": "v1.37.2", "gitMajor": "1", "gitMinor": "37"}


def test_etcd_is_of_the_same_minor_version_whether_it_is_built_or_taken_out_of_an_image() -> None:
    assert binaries.ETCD.version.split(".")[:2] == f"v{images.ETCD_TAG}".split(".")[:2]


def test_the_module_of_any_version_is_derived_from_its_own_requirements() -> None:
    try:
        with kubernetes_module(binaries.KUBERNETES.version) as derived:
            required, ours = ((each.directory / "go.mod").read_text() for each in (derived, binaries.KUBERNETES))
            assert derived.version == binaries.KUBERNETES.version
    except BinariesError as error:
        raise without(error) from None
    line = re.compile(r"^\s*(?:require |replace )?(\S+\.\S+ (?:=> \S+ )?v\S+)", re.MULTILINE)
    assert len(line.findall(required)) > 20
    assert set(line.findall(required)) <= set(line.findall(ours))


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_the_programs_tests_are_skipped_and_in_ci_they_fail(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="set XDG_CACHE_HOME"):
        raise without(BinariesError("set XDG_CACHE_HOME"))
