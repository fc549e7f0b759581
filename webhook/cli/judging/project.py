"""The place of ``.spotgate.yaml``, and the flags that it completes."""

from __future__ import annotations

import os
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Final

from webhook.cli.options import SHIPPED_WORD, policies_path
from webhook.context import ASSUMED_VERSION
from webhook.manifests.files import STDIN

if TYPE_CHECKING:
    from argparse import Namespace

FILE: Final = ".spotgate.yaml"


def take_project_file(options: Namespace) -> None:
    """Complete the flags from the project file, then with their defaults.

    Raise CannotJudgeError if the file is invalid; the text lists all mistakes.
    """
    file = _find(folder_of(options))
    if file is not None:
        from webhook.cli.judging.project_file import read_project_file  # noqa: PLC0415 - models are slow to import

        project = read_project_file(file)
        options.project = str(file.parent)
        options.policies = options.policies or [_policies_from_here(file, each) for each in project.policies]
        options.state = options.state or [_from_here(file, each) for each in project.state]
        options.ignore = options.ignore or [normpath(each) for each in project.ignore]
        options.cluster = options.cluster or project.cluster
        options.partial = options.partial or project.partial
        options.kubernetes_version = options.kubernetes_version or project.kubernetes_version
        if "fail_on" in options:
            options.fail_on = options.fail_on or project.fail_on
    options.kubernetes_version = options.kubernetes_version or ASSUMED_VERSION
    if "fail_on" in options:
        options.fail_on = options.fail_on or "deny"


def folder_of(options: Namespace) -> Path:
    """Return the folder of the first path that is named."""
    named = [path for path in (*options.paths, *options.kustomize, *options.helm) if path != STDIN]
    first = Path(os.path.abspath(named[0] if named else "."))  # noqa: PTH100 - `..` is to be gone
    return next(each for each in (first, *first.parents) if each.is_dir())


def _find(folder: Path) -> Path | None:
    """Return the project file in the folder or the next one above it, up to the root of the Git repository."""
    for each in (folder, *folder.parents):
        if os.path.lexists(each / FILE):
            return each / FILE
        if (each / ".git").exists():
            break
    return None


def _policies_from_here(file: Path, path: str) -> Path:
    return policies_path(path if path == SHIPPED_WORD else _from_here(file, path))


def _from_here(file: Path, path: str) -> str:
    """Return a path that is relative to the file as one that is relative to the working directory."""
    return path if Path(path).is_absolute() else os.path.relpath(file.parent / path)
