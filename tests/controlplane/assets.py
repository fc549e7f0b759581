"""Build the control plane of another Kubernetes version: `python -m tests.controlplane.assets 1.35.4` prints its folder.

Set `KUBEBUILDER_ASSETS` to the folder; `make` does so for `KUBERNETES=1.35.4`. The folder has the newest kubectl.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.rehearse.controlplane.binaries import (
    KUBERNETES,
    BinariesError,
    Module,
    cache_directory,
    find_go,
    find_or_build,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def gather(version: str) -> Path:
    """Build the missing programs, and return a folder with links to all programs. Raise BinariesError."""
    programs = find_or_build()
    with kubernetes_module(f"v{version.removeprefix('v')}") as module:
        programs |= find_or_build(module.packages, modules=[module])
        folder = cache_directory() / f"assets-{module.version}"
    folder.mkdir(exist_ok=True)
    for name, program in programs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(program)
    return folder


@contextlib.contextmanager
def kubernetes_module(version: str) -> Iterator[Module]:
    """Yield a module that builds this version, such as v1.34.4, from the requirements in its go.mod.

    That go.mod names the staging modules v0.0.0; they are published as v0.34.4. Raise BinariesError.
    """
    with tempfile.TemporaryDirectory(prefix="spotgate-") as folder:
        directory = Path(folder) / KUBERNETES.name
        directory.mkdir()
        packages = {name: package for name, package in KUBERNETES.packages.items() if name != "kubectl"}
        module = replace(KUBERNETES, directory=directory, packages=packages)
        downloaded = json.loads(_go(directory, "mod", "download", "-json", f"{module.source}@{version}"))
        required = json.loads(_go(directory, "mod", "edit", "-json", downloaded["GoMod"]))["Require"]
        staging = [requirement["Path"] for requirement in required if requirement["Version"] == "v0.0.0"]
        _go(directory, "mod", "init", f"spotgate.dev/controlplane/{module.name}")
        _go(
            directory,
            *("mod", "edit", f"-require={module.source}@{version}"),
            *(f"-replace={name}={name}@v0{version.removeprefix('v1')}" for name in staging),
        )
        _go(directory, "list", "-mod=mod", "-deps", *packages.values())  # completes go.mod and go.sum
        yield module


def _go(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [find_go(), *arguments],
        cwd=directory,
        env=os.environ | {"GOWORK": "off", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise BinariesError(f"`go {' '.join(arguments[:3])}` exited with {done.returncode}: {said}")
    return done.stdout


if __name__ == "__main__":
    os.environ.pop("KUBEBUILDER_ASSETS", None)
    try:
        sys.stdout.write(f"{gather(sys.argv[1])}\n")
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
