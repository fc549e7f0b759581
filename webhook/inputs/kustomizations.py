"""Find the kustomizations and charts to render, the files that each reads, and why one must not be rendered."""

from __future__ import annotations

import os
import re
import shlex
from functools import cache
from itertools import chain
from pathlib import Path
from posixpath import basename, dirname, join, normpath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.reading import read_file
from webhook.documents import Document, DocumentError, read_documents
from webhook.kube.filling import mapping
from webhook.policy.errors import escaped_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The file names of kustomizations and components.

Source: https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/
"""
CHART: Final = "Chart.yaml"
KUSTOMIZE_GROUP: Final = "kustomize.config.k8s.io"

_RESOURCES: Final = frozenset({"resources", "bases"})
_PATCHES: Final = frozenset({"patches", "patchesstrategicmerge", "patchesjson6902"})
_PLUGINS: Final = frozenset({"generators", "transformers", "validators"})
_FOLDERS: Final = _RESOURCES | {"components"} | _PLUGINS
_PATHS: Final = _FOLDERS | _PATCHES | {"configurations", "crds", "env", "envs", "files", "path"}
"""Fields with paths, at any depth. Go's JSON decoder ignores the letter case of field names."""

_TEXTS: Final = frozenset({"annotations", "commonannotations", "commonlabels", "labels"})
"""Fields below which no text is a path, regardless of its key."""

_REMOTE: Final = re.compile(r"https?:", re.IGNORECASE)
_LOADED_BY_HELM: Final = (CHART, "values.yaml", "templates", "crds", "charts")


def is_kustomization(path: str) -> bool:
    """Return whether a file name is that of a kustomization."""
    return basename(path) in KUSTOMIZATIONS


def patches_of(kustomizations: Iterable[tuple[str, bytes]]) -> frozenset[str]:
    """Return the paths of the files that kustomizations use only as patches."""
    patches: set[str] = set()
    resources: set[str] = set()
    for path, data in kustomizations:
        try:
            values = [document.value for document in read_documents(data, path)]
        except DocumentError:  # reported when its objects are read
            continue
        for field, items in chain.from_iterable(mapping(value).items() for value in values):
            # kustomize rejects other types in these fields, so they hide no files.
            named = [mapping(item).get("path", item) for item in items] if isinstance(items, list) else ()
            files = {normpath(join(dirname(path), file)) for file in named if isinstance(file, str) and file}
            if field.casefold() in _RESOURCES:
                resources |= files
            elif field.casefold() in _PATCHES:
                patches |= files
    return frozenset(patches - resources)


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A kustomization or chart to render: no other one uses it, or the user names it.

    Attributes:
        folder: the folder as the user sees it.
        place: the file to name in problems: kustomization.yaml or Chart.yaml.
        reads: the real paths of the files that rendering reads, except those that a chart reads only through `.Files`.
        refused: why it must not be rendered; empty if it may be.
        trusted: whether the user names it, so that it may use the network.
    """

    folder: str
    place: str
    is_chart: bool
    reads: frozenset[str] = frozenset()
    refused: str = ""
    trusted: bool = False

    @property
    def command(self) -> str:
        """Return the user's command to render it."""
        return f"{'helm template' if self.is_chart else 'kustomize build'} {shlex.quote(escaped_name(self.folder))}"


class Rendered(Document, frozen=True):
    """A document in the output of a program, with the text of its source document, if known.

    Attributes:
        command: the program's command.
    """

    command: str = ""


class RefusedError(Exception):
    """A kustomization or chart that must not be rendered, and the reason."""


def roots_of(files: Sequence[str], boundary: str) -> list[Root]:
    """Return the roots to render, so that each of these kustomizations and charts is rendered or read by a root.

    Components and library charts can't be rendered alone. Rendering must read nothing outside the boundary, a real
    folder.
    """
    tree = _Tree(boundary)
    given = {os.path.realpath(dirname(file) or "."): file for file in files if is_kustomization(file)}
    buildable = [folder for folder in given if tree.is_buildable(folder)]
    used = {target for folder in given for target in tree.folders_of(folder) if target != folder}
    roots: list[Root] = []
    covered: set[str] = set()
    # If kustomizations form a cycle, render the first one: its error names the cycle.
    for folder in sorted(buildable, key=used.__contains__):
        if folder not in covered:
            reads, folders, refused = tree.walk(folder)
            covered |= folders
            roots.append(_root(given[folder], reads, refused))
    charts = (_chart(file, boundary) for file in files if basename(file) == CHART)
    return [*roots, *filter(None, charts)]


def _root(file: str, reads: Iterable[str], refused: str) -> Root:
    folder, is_chart = dirname(file) or ".", basename(file) == CHART
    return Root(folder=folder, place=file, is_chart=is_chart, reads=frozenset(reads), refused=refused)


class _Tree:
    """The kustomizations of a repository, each read once."""

    def __init__(self, boundary: str) -> None:
        self._boundary = boundary
        self._read = cache(self._documents_of)

    def _documents_of(self, folder: str) -> tuple[list[Any], str]:
        """Return the documents of the kustomization in a folder, and why one can't be read."""
        values, problem = [], ""
        for file in filter(os.path.lexists, (join(folder, name) for name in KUSTOMIZATIONS)):
            try:
                _refuse_outside(file, self._boundary)
                values += [document.value for document in read_documents(read_file(file), file)]
            except (OSError, DocumentError, RefusedError) as error:
                problem = str(error)
        return values, problem

    def is_buildable(self, folder: str) -> bool:
        """Return whether kustomize can build this folder alone. Flux also has a kind named Kustomization."""
        values, _ = self._read(folder)
        first = values[0] if values and isinstance(values[0], dict) else {}
        group = str(first.get("apiVersion") or KUSTOMIZE_GROUP).partition("/")[0]
        return group == KUSTOMIZE_GROUP and first.get("kind") != "Component"

    def folders_of(self, folder: str) -> Iterator[str]:
        """Yield the real paths of the folders that a kustomization uses."""
        for field, path in _paths(self._read(folder)[0]):
            if field in _FOLDERS and "\0" not in path and os.path.isdir(join(folder, path)):  # noqa: PTH112 - many
                yield os.path.realpath(join(folder, path))

    def walk(self, folder: str) -> tuple[frozenset[str], set[str], str]:
        """Return the files and folders that a build reads, and why it must not run."""
        files: set[str] = set()
        folders: set[str] = set()
        refused = ""
        waiting = [folder]
        while waiting:
            base = waiting.pop()
            if base in folders:
                continue
            folders.add(base)
            files.update(filter(os.path.lexists, (join(base, name) for name in KUSTOMIZATIONS)))
            values, problem = self._read(base)
            refused = refused or problem
            for field, path in _paths(values):
                try:
                    target = self._target(base, field, path)
                except (OSError, ValueError, DocumentError, RefusedError) as error:
                    refused = refused or f"{field}: {error}"
                    continue
                if not os.path.isdir(target):  # noqa: PTH112 - many
                    files.update(filter(None, (target,)))
                elif field in _FOLDERS:
                    waiting.append(target)
        return frozenset(files), folders, refused

    def _target(self, folder: str, field: str, path: str) -> str:
        """Return the real path that a field names; empty if it doesn't exist.

        Raise RefusedError if it is outside the boundary, or rendering it could use the network.
        """
        if field in _PLUGINS:
            raise RefusedError("plugins are disabled")
        if field in {"files", "env", "envs"}:
            path = path.partition("=")[2] or path  # KEY=FILE
        if "\n" in path:
            return ""  # an inline patch
        if _REMOTE.search(path):
            raise RefusedError(f"{path} is remote, and nothing is read from the network")
        target = os.path.realpath(join(folder, path))
        if not os.path.exists(target):  # noqa: PTH110 - many
            if field in _FOLDERS:
                raise RefusedError(f"{path} is neither a file nor a folder here, and nothing is read from the network")
            return ""
        _refuse_outside(target, self._boundary)
        return target


def _refuse_outside(file: str, boundary: str) -> None:
    """Raise RefusedError if a path is outside the boundary."""
    real = os.path.realpath(file)
    if not f"{real}/".startswith(f"{boundary.rstrip('/')}/"):
        raise RefusedError(f"{os.path.relpath(file)} leads out of {os.path.relpath(boundary)}")


def _paths(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text that kustomize may read as a path, with its field in lower case."""
    if isinstance(value, dict):
        for key, member in value.items():
            if key.casefold() not in _TEXTS:
                yield from _paths(member, key.casefold())
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item, field)
    elif isinstance(value, str) and field in _PATHS and value:
        yield field, value


def _chart(file: str, boundary: str) -> Root | None:
    """Return a chart to render, or None if it is a library or part of another chart."""
    folder = dirname(file) or "."
    reads: set[str] = set()
    refused = ""
    try:
        _refuse_outside(file, boundary)
        if _is_library(file):
            return None
        charts, name = Path(folder).absolute().parent, Path(folder).absolute().name
        parent = charts.parent / CHART
        is_loaded = charts.name == "charts" and not name.startswith((".", "_"))  # like Helm's loader
        if is_loaded and parent.is_file() and not _is_library(str(parent)):
            return None
        _files_of(folder, boundary)
        for path in filter(os.path.exists, (join(folder, name) for name in _LOADED_BY_HELM)):
            reads |= _files_of(path, boundary)
    except (OSError, DocumentError, RefusedError) as error:
        refused = str(error)
    return _root(file, reads, refused)


def _is_library(file: str) -> bool:
    about = read_documents(read_file(file), file)
    return bool(about) and isinstance(about[0].value, dict) and about[0].value.get("type") == "library"


def _files_of(path: str, boundary: str) -> set[str]:
    """Return the real paths of the files below a path, following links. Raise RefusedError for a path outside."""
    files: set[str] = set()
    folders: set[str] = set()
    waiting = [path]
    while waiting:
        child = waiting.pop()
        if os.path.islink(child):  # noqa: PTH114 - many
            _refuse_outside(child, boundary)
        real = os.path.realpath(child)
        if not os.path.isdir(real):  # noqa: PTH112 - many
            files.add(real)
        elif real not in folders:
            folders.add(real)
            waiting += (join(real, name) for name in os.listdir(real))  # noqa: PTH208 - many
    return files
