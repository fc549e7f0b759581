"""Paths of files in their repository, by which platforms that show findings know them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.manifests.files import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHECKOUTS: Final = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Variables in which GitHub and GitLab name the folder of the repository."""


def repository_paths(files: Iterable[str]) -> dict[str, str]:
    """Return for each file its path from the root of the repository, with ``/``.

    The root is what the platform names, if that is a repository; else the next folder above with a ``.git``; else what
    the platform names, or the working directory. A file that is not below it has its path from the working directory.
    """
    roots: dict[Path, Path] = {}
    paths = {}
    for file in set(files) - {STDIN}:
        whole = Path(os.path.abspath(file))  # noqa: PTH100 - a link stays one
        root = roots.get(whole.parent) or roots.setdefault(whole.parent, _root(whole.parent))
        path = whole.relative_to(root) if whole.is_relative_to(root) else Path(os.path.relpath(whole))
        paths[file] = path.as_posix()
    return {STDIN: STDIN, **paths}


def _root(folder: Path) -> Path:
    checkouts = [Path(os.environ[name]) for name in _CHECKOUTS if os.environ.get(name)]
    named = [each for each in checkouts if folder.is_relative_to(each)]
    found = [each for each in (*named, folder, *folder.parents) if (each / ".git").exists()]
    return [*found, *named, Path.cwd()][0]
