"""Gather a control plane of another version of Kubernetes: `python -m tests.controlplane.assets 1.35.4` prints its folder.

The folder is for `KUBEBUILDER_ASSETS`, which `make` sets for `KUBERNETES=1.35.4`. Its kubectl is of the newest version.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from webhook.rehearse.controlplane.binaries import BinariesError, cache_directory, find_or_build, kubernetes_module

if TYPE_CHECKING:
    from pathlib import Path


def gather(version: str) -> Path:
    """Return a folder with links to all programs, those that are missing built. Raise BinariesError."""
    programs = find_or_build()
    with kubernetes_module(f"v{version.removeprefix('v')}") as module:
        programs |= find_or_build(module.packages, modules=[module])
        folder = cache_directory() / f"assets-{module.version}"
    folder.mkdir(exist_ok=True)
    for name, program in programs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(program)
    return folder


if __name__ == "__main__":
    os.environ.pop("KUBEBUILDER_ASSETS", None)
    try:
        sys.stdout.write(f"{gather(sys.argv[1])}\n")
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
