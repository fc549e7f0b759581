"""Judge what every Flux Kustomization below the given folders, or this one, will apply.

    python validate.py clusters/

For a pipeline, in the root of the repository that Flux reads, with kustomize and spotgate in PATH and with PyYAML,
which spotgate brings along. Variables of `postBuild` are judged as they are written.

Exit code: 2 where something can't be read, built or judged, or no Kustomization was found; else 1 where something was
found that fails.
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
CANNOT_JUDGE = 2


def main(folders: list[str]) -> int:
    """Judge each path once."""
    paths: set[str] = set()
    code = 0
    for folder in folders:
        found = set()
        for file in manifests(Path(folder)):
            try:
                found |= set(paths_in(file.read_bytes()))
            except (OSError, ValueError, yaml.YAMLError) as error:
                print(f"{file}: can't be read: {error}", file=sys.stderr)
                code = CANNOT_JUDGE
        if not found:
            print(f"{folder}: no Kustomization of {GROUP} is in a file below it; name another folder", file=sys.stderr)
            code = CANNOT_JUDGE
        paths |= found
    for path in sorted(paths):
        print(f"--- {path}", flush=True)
        code = max(code, judge(path))
    return code


def manifests(folder: Path) -> Iterator[Path]:
    """Every YAML file below the folder, hidden ones left out."""
    for file in sorted(folder.rglob("*.y*ml")):
        inside = file.relative_to(folder).parts
        if file.suffix in {".yaml", ".yml"} and not any(part.startswith(".") for part in inside):
            yield file


def paths_in(data: bytes) -> Iterator[str]:
    """Yield what the Kustomizations of a file apply; other files need not be readable YAML."""
    if GROUP.encode() in data:
        yield from (path_of(each) for each in yaml.load_all(data, Loader=yaml.CSafeLoader) if is_kustomization(each))


def is_kustomization(document: Any) -> bool:
    """Return whether it is a Kustomization of Flux, and not of kustomize."""
    return (
        isinstance(document, dict)
        and document.get("kind") == "Kustomization"
        and str(document.get("apiVersion")).startswith(GROUP)
    )


def path_of(kustomization: dict[str, Any]) -> str:
    """Return the folder that it applies: without a path the root of the repository.

    Raises:
        ValueError: its spec is none.
    """
    spec = kustomization.get("spec") or {}
    path = spec.get("path") or "." if isinstance(spec, dict) else None
    if not isinstance(path, str):
        raise ValueError("spec.path of a Kustomization is no text")  # noqa: TRY004 - of a file
    return str(Path(path.lstrip("/")))


def judge(path: str) -> int:
    """Build a folder as Flux does, and judge that."""
    built = subprocess.run(["kustomize", "build", "--", path], stdout=subprocess.PIPE, check=False)  # noqa: S603, S607
    if built.returncode:
        print(f"{path}: kustomize can't build it; Flux needs a kustomization.yaml there too", file=sys.stderr)
        return CANNOT_JUDGE
    return subprocess.run(["spotgate", "check", "-"], input=built.stdout, check=False).returncode  # noqa: S607


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["."]))
