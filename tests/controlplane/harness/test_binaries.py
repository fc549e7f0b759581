"""The harness finds the control plane's programs or builds them once, or reports why it can't."""

from __future__ import annotations

import os
import re
import sys
import time
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
    """Return an empty cache, and hide the programs of this machine."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spotgate" / "controlplane"


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the progress messages, as they arrive."""
    lines: list[str] = []
    monkeypatch.setattr(binaries, "report", lines.append)
    return lines


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a `go` that logs each program that it builds, and return the log file."""
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


def test_kubebuilder_assets_is_used_only_if_it_has_all_programs(
    cache: Path, calls: Path, messages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assets").mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    (tmp_path / "assets" / "etcd").touch(mode=0o755)
    assert find_or_build(["etcd"]) == {"etcd": tmp_path / "assets" / "etcd"}
    assert calls.read_text() == ""
    assert find_or_build(ETCD_AND_KWOK)["etcd"].is_relative_to(cache)
    assert messages[0] == f"KUBEBUILDER_ASSETS is not used: {tmp_path}/assets lacks some of etcd, kwok"


@pytest.mark.usefixtures("cache")
def test_built_programs_are_found_later_without_go(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = find_or_build(ETCD_AND_KWOK)
    assert {name: path.read_text() for name, path in built.items()} == {"etcd": "program\n", "kwok": "program\n"}
    monkeypatch.setenv("PATH", "")
    assert find_or_build(ETCD_AND_KWOK) == built
    assert calls.read_text().splitlines() == ["go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"]


def test_only_one_of_several_concurrent_processes_builds_and_the_others_say_what_they_wait_for(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, started, waited_for = tmp_path / "calls", tmp_path / "started", tmp_path / "waited for"
    install_go(
        tmp_path,
        monkeypatch,
        f'while [ "$1" != -o ]; do shift; done; touch {started}; while ! [ -e "{waited_for}" ]; do sleep 0.02; done; '
        f'echo "$3" >> {log}; echo program > "$2"; chmod +x "$2"',
    )

    def note(line: str) -> None:
        if line == f"waiting for process {os.getpid()}, which adds etcd to the cache (lock: {cache}/lock)":
            waited_for.touch()

    monkeypatch.setattr(binaries, "report", note)
    with ThreadPoolExecutor(4) as pool:
        building = pool.submit(find_or_build, ["etcd"])
        while not started.exists():
            time.sleep(0.02)
        paths = list(pool.map(lambda _: find_or_build(["etcd"]), range(3)))
    assert {path["etcd"] for path in [building.result(), *paths]} == {cache / binaries.ETCD.key / "etcd"}
    assert log.read_text() == "go.etcd.io/etcd/server/v3\n"


def test_a_failed_build_shows_the_output_of_go_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install_go(tmp_path, monkeypatch, "echo no space left on device >&2; exit 1")
    with pytest.raises(BinariesError, match=r"^etcd v\S+ could not be built.* exited with 1; see its output above"):
        find_or_build(["etcd"])
    assert capfd.readouterr().err.endswith("\nno space left on device\n")
    assert [path.name for path in cache.iterdir()] == ["lock"]


@pytest.mark.usefixtures("cache")
def test_an_interrupted_build_continues_with_the_missing_programs(
    messages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_go(
        tmp_path,
        monkeypatch,
        'while [ "$1" != -o ]; do shift; done; case $2 in */kubectl) exit 1;; esac; echo program > "$2"; chmod +x "$2"',
    )
    for built in (4, 1):
        messages.clear()
        with pytest.raises(BinariesError, match=r"^kubectl v\S+ could not be built"):
            find_or_build(["kube-apiserver"])
        assert len(messages) == built


@pytest.mark.usefixtures("cache")
def test_without_go_the_error_names_the_version_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BinariesError, match=r"there is no `go`: install Go 1\.26 or newer"):
        find_or_build()


def test_the_build_sets_the_version_of_kubernetes() -> None:
    *_, ldflags = binaries.KUBERNETES.flags()
    stamps = dict(re.findall(r"-X k8s\.io/component-base/version\.(\w+)=(\S+)", ldflags))
    assert stamps == {"gitVersion": "v1.37.2", "gitMajor": "1", "gitMinor": "37"}


def test_the_built_etcd_and_the_one_from_an_image_have_the_same_minor_version() -> None:
    assert binaries.ETCD.version.split(".")[:2] == f"v{images.ETCD_TAG}".split(".")[:2]


def test_the_module_of_a_version_is_derived_from_its_go_mod() -> None:
    try:
        with kubernetes_module(binaries.KUBERNETES.version) as derived:
            required, ours = ((module.directory / "go.mod").read_text() for module in (derived, binaries.KUBERNETES))
            assert derived.version == binaries.KUBERNETES.version
    except BinariesError as error:
        raise without(error) from None
    line = re.compile(r"^\s*(?:require |replace )?(\S+\.\S+ (?:=> \S+ )?v\S+)", re.MULTILINE)
    assert len(line.findall(required)) > 20
    assert set(line.findall(required)) <= set(line.findall(ours))


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_the_programs_tests_are_skipped_locally_and_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="set XDG_CACHE_HOME"):
        raise without(BinariesError("set XDG_CACHE_HOME"))
