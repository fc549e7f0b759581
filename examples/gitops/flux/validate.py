"""Check the manifests of all Flux Kustomizations in the given folders, or in the current folder.

    python validate.py clusters/

Run this in CI, in the root of the repository that Flux reads. It needs kustomize and spotgate in PATH, and PyYAML,
which spotgate installs. It doesn't substitute the variables of `postBuild`.

Exit code: 2 if a file can't be read, built, or checked, or if there is no Kustomization; otherwise 1 if a finding fails
the check.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "kustomize.toolkit.fluxcd.io/"
CANNOT_CHECK = 2


def main(folders: list[str]) -> int:
    """Check each path once. Return the exit code."""
    paths: set[str] = set()
    code = 0
    for folder in folders:
        applied = set()
        for file in manifests(Path(folder)):
            try:
                applied |= set(paths_in(file.read_bytes()))
            except (OSError, ValueError, yaml.YAMLError) as error:
                print(f"{file}: can't be read: {error}", file=sys.stderr)
                code = CANNOT_CHECK
        if not applied:
            print(f"{folder}: no file contains a Kustomization of {GROUP}; name another folder", file=sys.stderr)
            code = CANNOT_CHECK
        paths |= applied
    for path in sorted(paths):
        print(f"--- {path}", flush=True)
        code = max(code, check(path))
    return code


def manifests(folder: Path) -> Iterator[Path]:
    """Yield all YAML files below the folder, except hidden files."""
    for file in sorted(folder.rglob("*.y*ml")):
        inside = file.relative_to(folder).parts
        if file.suffix in {".yaml", ".yml"} and not any(part.startswith(".") for part in inside):
            yield file


def paths_in(data: bytes) -> Iterator[str]:
    """Yield the folders that a file's Kustomizations apply. Files without Kustomizations may contain invalid YAML."""
    if GROUP.encode() in data:
        yield from map(path_of, filter(is_kustomization, yaml.load_all(data, Loader=yaml.CSafeLoader)))


def is_kustomization(document: Any) -> bool:
    """Return whether the document is a Kustomization of Flux instead of kustomize."""
    return (
        isinstance(document, dict)
        and document.get("kind") == "Kustomization"
        and str(document.get("apiVersion")).startswith(GROUP)
    )


def path_of(kustomization: dict[str, Any]) -> str:
    """Return the folder that a Kustomization applies. Without a path, this is the root of the repository.

    Raises:
        ValueError: the spec is invalid.
    """
    spec = kustomization.get("spec") or {}
    path = spec.get("path") or "." if isinstance(spec, dict) else None
    if not isinstance(path, str):
        raise ValueError("spec.path of a Kustomization isn't a string")  # noqa: TRY004 - a value in a file
    return str(Path(path.lstrip("/")))


def check(path: str) -> int:
    """Build a folder like Flux, and check the result. Return the exit code."""
    built = subprocess.run(["kustomize", "build", "--", path], stdout=subprocess.PIPE, check=False)  # noqa: S603, S607
    if built.returncode:
        print(f"{path}: kustomize can't build it; Flux also needs a kustomization.yaml in it", file=sys.stderr)
        return CANNOT_CHECK
    return subprocess.run(["spotgate", "check", "-"], input=built.stdout, check=False).returncode  # noqa: S607


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["."]))
