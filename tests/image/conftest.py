"""The image, which buildah builds from the Dockerfile on a local base, without a container registry.

The base is a Debian from debootstrap, with the Python that runs the tests in place of the official image's. It stays in
buildah's store, next to the other programs that tests build.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webhook.rehearse.controlplane.binaries import cache_directory, find_or_build
from webhook.rehearse.runs.programs import NEEDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
STORE = cache_directory().parent / "images"
# The release of this machine, because its Python is linked to this machine's libraries.
DEBIAN = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
CAPABILITY = "security.capability"
PROGRAMS = ("buildah", "debootstrap")
TIMEOUT_SECONDS = 600
PYTHON = Path(sys.base_prefix)
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Image:
    """An image with a container.

    Attributes:
        layout: its OCI layout, compressed as in a registry.
        root: the folder with its files.
        config: the configuration for a runtime.
        container: the container that runs commands.
    """

    layout: Path
    root: Path
    config: dict[str, Any]
    container: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the first test time to build, and skip all tests if the image can't be built."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    reason = ""
    if missing:
        reason = f"no {', '.join(missing)} (Debian: apt-get install {' '.join(missing)})"
    elif os.geteuid() != 0:
        reason = "debootstrap makes a Debian only for root"
    elif Path("/usr") == PYTHON:
        reason = "the Python that runs the tests is Debian's own, and no folder apart"
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
            item.add_marker(pytest.mark.skipif(bool(reason), reason=reason))


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program and return its output; if it fails, the error contains the output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


def buildah(*arguments: str | Path) -> str:
    """Run buildah on the tests' store."""
    return run("buildah", "--root", STORE / "root", "--runroot", STORE / "run", *arguments)


@pytest.fixture(scope="session")
def base() -> str:
    """Return the name of the base image; building it takes a minute, once."""
    name = f"localhost/base:{DEBIAN}-{'.'.join(map(str, sys.version_info[:3]))}"
    if buildah("images", "--quiet", "--filter", f"reference={name}"):
        return name
    tree = STORE / "base"
    shutil.rmtree(tree, ignore_errors=True)
    STORE.mkdir(parents=True, exist_ok=True)
    run("debootstrap", "--variant=minbase", "--include=ca-certificates", DEBIAN, tree)
    (tree / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        PYTHON / "lib" / NAME,
        tree / "usr/local/lib" / NAME,
        symlinks=True,
        ignore=lambda folder, names: [
            name
            for name in names
            if name in ("test", "__pycache__") or (folder.endswith("site-packages") and not name.startswith("pip"))
        ],
    )
    for library in (PYTHON / "lib").glob("libpython*.so*"):
        shutil.copy2(library, tree / "usr/lib" / f"{os.uname().machine}-linux-gnu", follow_symlinks=False)
    shutil.copy2(PYTHON / "bin" / NAME, tree / "usr/local/bin")
    for link in ("python", "python3"):
        (tree / "usr/local/bin" / link).symlink_to(NAME)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, tree, "/")
    buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
    buildah("commit", "--quiet", "--rm", container, name)
    shutil.rmtree(tree)
    return name


@pytest.fixture(scope="session")
def build(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[str, Path]]]:
    """Return a function that builds the image from a copy of the checkout, and returns its digest and its OCI layout.

    The function takes a tag and flags for buildah.
    """
    folder = tmp_path_factory.mktemp("image")
    pip = folder / "pip.conf"
    # The package index and certificates of this machine are mounted, so that none of this stays in the image.
    listed = (line.partition("=") for line in run(sys.executable, "-m", "pip", "config", "list").splitlines())
    settings = {key.rpartition(".")[2]: value.strip("'") for key, _, value in listed}
    pip.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
    tags: list[str] = []

    def build(tag: str, *flags: str) -> tuple[str, Path]:
        checkout, layout = folder / tag, folder / f"{tag}.oci"
        for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
            if (ROOT / name).is_file():
                (checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, checkout / name)
        tags.append(f"localhost/spotgate:{tag}")
        buildah(
            "bud", "--isolation=chroot", "--network=host", "--no-cache", "--format=oci", "--timestamp=0",
            f"--build-arg=PYTHON={base}", f"--volume={pip}:/etc/pip.conf:ro", "--volume=/etc/ssl/certs:/etc/ssl/certs:ro",
            f"--tag={tags[-1]}", *flags, checkout,
        )  # fmt: skip
        buildah("push", "--quiet", tags[-1], f"oci:{layout}:spotgate")
        (manifest,) = json.loads((layout / "index.json").read_text())["manifests"]
        return manifest["digest"], layout

    yield build
    buildah("rmi", "--force", *tags)


@pytest.fixture(scope="session")
def digest_and_layout(build: Callable[..., tuple[str, Path]]) -> tuple[str, Path]:
    """Return the digest and the OCI layout of the image."""
    return build("one")


@pytest.fixture(scope="session")
def image(digest_and_layout: tuple[str, Path]) -> Iterator[Image]:
    """Yield the image, with an idle container."""
    yield from _image("one", *digest_and_layout)


@pytest.fixture(scope="session")
def rehearsal_image(
    build: Callable[..., tuple[str, Path]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Image]:
    """Yield the image of rehearsals, with this machine's programs in place of those from registry.k8s.io."""
    folder = tmp_path_factory.mktemp("programs") / "usr" / "local" / "bin"
    folder.mkdir(parents=True)
    for name, path in find_or_build(NEEDED).items():
        shutil.copy(path, folder / name)
    # As upstream: cap_net_bind_service, permitted and effective (struct vfs_cap_data, revision 2).
    os.setxattr(folder / "kube-apiserver", CAPABILITY, struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
    container, name = buildah("from", "scratch"), "localhost/programs:test"
    buildah("add", "--quiet", container, folder.parents[2], "/")
    buildah("commit", "--quiet", "--rm", container, name)
    arguments = ("ETCD", "KWOK", "KUBE_APISERVER", "KUBE_CONTROLLER_MANAGER", "KUBE_SCHEDULER")
    flags = [f"--build-arg={argument}={name}" for argument in arguments]
    yield from _image("rehearsal", *build("rehearsal", "--target=rehearsal", *flags))
    buildah("rmi", "--force", name)


def _image(tag: str, digest: str, layout: Path) -> Iterator[Image]:
    manifest = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
    config = json.loads((layout / "blobs" / manifest["config"]["digest"].replace(":", "/")).read_text())["config"]
    container = buildah("from", f"localhost/spotgate:{tag}")
    yield Image(layout, Path(buildah("mount", container)), config, container)
    buildah("rm", container)
