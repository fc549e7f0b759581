"""The Go module of another version of Kubernetes than the one that is pinned here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.controlplane.binaries import KUBERNETES, BuildError, find_go

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.controlplane.binaries import Module


@contextlib.contextmanager
def kubernetes_module(version: str) -> Iterator[Module]:
    """Yield a module that builds this version, such as v1.34.4, from what its own go.mod requires.

    That names its staging modules v0.0.0; they are published as v0.34.4. Raise BinariesError.
    """
    with tempfile.TemporaryDirectory(prefix="spotgate-") as folder:
        directory = Path(folder) / KUBERNETES.name
        directory.mkdir()
        packages = {name: each for name, each in KUBERNETES.packages.items() if name != "kubectl"}
        module = replace(KUBERNETES, directory=directory, packages=packages)
        downloaded = json.loads(_go(directory, "mod", "download", "-json", f"{module.source}@{version}"))
        required = json.loads(_go(directory, "mod", "edit", "-json", downloaded["GoMod"]))["Require"]
        staging = [each["Path"] for each in required if each["Version"] == "v0.0.0"]
        _go(directory, "mod", "init", f"spotgate.dev/controlplane/{module.name}")
        _go(
            directory,
            *("mod", "edit", f"-require={module.source}@{version}"),
            *(f"-replace={each}={each}@v0{version.removeprefix('v1')}" for each in staging),
        )
        _go(directory, "list", "-mod=mod", "-deps", *packages.values())  # completes go.mod and go.sum
        yield module


def _go(directory: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - Go
        [find_go(), *arguments],
        cwd=directory,
        env=os.environ | {"GOWORK": "off", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise BuildError(f"`go {' '.join(arguments[:3])}` exited with {done.returncode}: {said}")
    return done.stdout
