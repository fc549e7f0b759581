"""Find the files that kustomizations name as patches. They look like Kubernetes objects, and are parts of some."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from posixpath import basename, dirname, join, normpath
from typing import TYPE_CHECKING, Final

from webhook.documents import DocumentError, read_documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAMES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The names that kustomize looks for, of kustomizations and of components.

Source: https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/
"""


def is_kustomization(path: str) -> bool:
    """Return whether a file is a kustomization, by its name."""
    return basename(path) in _NAMES


def patches_of(kustomizations: Iterable[tuple[str, bytes]]) -> frozenset[str]:
    """Return the paths of files that kustomizations use as patches alone."""
    patches: set[str] = set()
    resources: set[str] = set()
    for path, data in kustomizations:
        for field, file in _files_in(path, data):
            (resources if field in _RESOURCES else patches).add(normpath(join(dirname(path), file)))
    return frozenset(patches - resources)


def patches_near(files: Iterable[str]) -> frozenset[str]:
    """Return the real paths of patches, as told by kustomizations in the folders of these files and above them."""
    return patches_of(_kustomizations_near(files))


def _kustomizations_near(files: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    seen: set[str] = set()
    folders: set[str] = set()
    for folder, inside in groupby(files, dirname):
        folders.add(os.path.realpath(folder))
        folders |= {dirname(os.path.realpath(file)) for file in inside if os.path.islink(file)}  # noqa: PTH114
    for folder in folders:
        for each in (Path(folder), *Path(folder).parents):
            if str(each) in seen:
                break
            seen.add(str(each))
            for file in (each / name for name in _NAMES):
                try:
                    yield str(file), file.read_bytes()
                except OSError:  # nearly always: it is not there
                    continue
            if (each / ".git").exists():
                break


_RESOURCES: Final = ("resources", "bases")
_PATCHES: Final = ("patches", "patchesStrategicMerge", "patchesJson6902")


def _files_in(path: str, data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the files that a kustomization names, each with its field. Where it can't be read, others say so."""
    try:
        documents = read_documents(data, path)
    except DocumentError:
        return
    for document in documents:
        value = document.value if isinstance(document.value, dict) else {}
        for field in (*_RESOURCES, *_PATCHES):
            items = value.get(field)
            for item in items if isinstance(items, list) else ():
                file = item.get("path") if isinstance(item, dict) else item
                if isinstance(file, str) and file and "\n" not in file:  # else the patch itself
                    yield field, file
