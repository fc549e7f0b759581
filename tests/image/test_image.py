"""The contents of the image, and its commands: `make image`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.image.conftest import CAPABILITY, ROOT, STORE, Image
from tests.repository.test_packaging import locked
from webhook import __version__
from webhook.rehearse.runs.programs import NEEDED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def size_mib(folder: Path) -> float:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()) / 2**20


def test_its_size_is_printed(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nimage: {size_mib(image.root):.0f} MiB, {size_mib(image.layout):.0f} MiB compressed")  # noqa: T201
    assert list((image.root / "opt/spotgate").iterdir())


def test_the_only_programs_are_python_and_its_scripts(image: Image) -> None:
    linked = re.compile(rb"\A(\x7fELF|#!/opt/spotgate/bin/python)")
    bins = [
        file
        for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/spotgate/bin")
        if (image.root / folder).is_dir()
        for file in (image.root / folder).iterdir()
        if not file.is_symlink() and file.is_file()
    ]
    assert [file.name for file in bins if file.read_bytes().startswith(b"\x7fELF")] == [
        next((image.root / "usr/local/bin").glob("python3.*")).name
    ]
    assert not [file for file in bins if not linked.match(file.read_bytes())]


@pytest.mark.parametrize(
    "name", ["pip", "ensurepip", "setuptools", "apt", "dpkg", "sh", "bash", "perl", "gcc", "cc", "as", "ld"]
)
def test_it_has_no_shell_installer_or_compiler(image: Image, name: str) -> None:
    files = [file for file in image.root.rglob(name) if file.parent.name != "dpkg" and file.name != "dpkg"]
    assert files == []


def test_it_has_no_way_to_become_root(image: Image) -> None:
    assert not [file for file in image.root.rglob("*") if not file.is_symlink() and file.lstat().st_mode & 0o6000]
    assert image.config["User"] == "65532:65532"


def test_only_tmp_is_writable_by_others(image: Image) -> None:
    writable = [file for file in image.root.rglob("*") if not file.is_symlink() and file.lstat().st_mode & 0o002]
    assert writable == [image.root / "tmp"]


def test_its_labels_describe_it(image: Image) -> None:
    labels = image.config["Labels"]
    prefix = "org.opencontainers.image."
    assert {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} == {
        "title", "description", "licenses", "version", "revision", "source",
    }  # fmt: skip
    assert labels[f"{prefix}version"] == __version__


def test_it_has_no_paths_of_this_machine(image: Image) -> None:
    texts = ("*.conf", "*.cfg", "*.json", "RECORD", "*.pth")
    named = [file for pattern in texts for file in image.root.rglob(pattern) if file.is_file()]
    assert named
    assert not [file for file in named if b"/root/" in file.read_bytes() or str(ROOT).encode() in file.read_bytes()]


def test_the_bill_of_materials_lists_every_package(image: Image) -> None:
    text = (image.root / "usr/share/spotgate/sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    listed = {component["name"].lower().replace("_", "-"): component["version"] for component in bill["components"]}
    wanted = {name: next(iter(pin.specifier)).version for name, (pin, _) in locked("runtime.txt").items()}
    assert {name: listed.get(name) for name in wanted} == wanted
    debian = {entry.name for entry in (image.root / "var/lib/dpkg/status.d").iterdir()}
    assert "libc6" in debian
    assert debian <= set(listed)
    assert bill["metadata"]["component"]["version"] == __version__


def in_container(image: Image, *command: str) -> list[str]:
    store = [f"--root={STORE}/root", f"--runroot={STORE}/run"]
    return ["buildah", *store, "run", "--isolation=chroot", "--network=host", image.container, "--", *command]


def test_it_judges_a_cel_rule(image: Image) -> None:
    (image.root / "tmp/rule.yaml").write_text(
        "apiVersion: spotgate.dev/v1\nkind: Validation\nmetadata: {name: named}\nspec:\n"
        "  match: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n"
        "  validations: [{expression: 'object.metadata.name.startsWith(\"ours-\")', message: not ours}]\n"
    )
    (image.root / "tmp/pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: theirs}\nspec: {containers: [{name: main, image: busybox}]}\n"
    )
    command = in_container(image, "spotgate", "check", "--policies", "/tmp/rule.yaml", "/tmp/pod.yaml")  # noqa: S108
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "not ours" in done.stdout, done.stderr


def test_it_serves_and_its_start_time_is_printed(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    state = image.root / "tmp/state.yaml"
    state.write_text("\n---\n".join(file.read_text() for file in sorted((ROOT / "examples/state").glob("*.yaml"))))
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        https, ops = first.getsockname()[1], second.getsockname()[1]
    command = in_container(
        image, "spotgate", "serve", "--self-signed", f"--listen=127.0.0.1:{https}", f"--ops=127.0.0.1:{ops}",
        "--state=/tmp/state.yaml",
    )  # fmt: skip
    started = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            while not ready(ops):
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.02)
            took = time.monotonic() - started
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    with capsys.disabled():
        print(f"\nimage: ready after {took:.1f} s, buildah's own start included")  # noqa: T201


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def test_the_rehearsal_image_rehearses_as_an_ordinary_user(rehearsal_image: Image) -> None:
    programs = rehearsal_image.root / "opt/controlplane"
    assert {file.name for file in programs.iterdir()} == NEEDED
    assert not [file for file in programs.iterdir() if CAPABILITY in os.listxattr(file)]
    shutil.copytree(ROOT / "examples/state", rehearsal_image.root / "tmp/state")
    shutil.copy(ROOT / "examples/web-on-spot.yaml", rehearsal_image.root / "tmp")
    flags = ("--lose=cpu-spot", "--state=/tmp/state", "--runs=1", "-o=json", "/tmp/web-on-spot.yaml")  # noqa: S108
    command = in_container(rehearsal_image, "spotgate", "rehearse", *flags)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workloads"]
    assert list((rehearsal_image.root / "tmp").glob("spotgate-*")) == []


def test_two_builds_have_the_same_digest(
    digest_and_layout: tuple[str, Path], build: Callable[..., tuple[str, Path]]
) -> None:
    assert build("two")[0] == digest_and_layout[0]
