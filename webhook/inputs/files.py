"""Find the files to read manifests from: given files, files below folders, and standard input.

Omit files that kustomizations use as patches: they look like Kubernetes objects, but are only parts of objects.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from posixpath import dirname, realpath
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.base.reading import read_file
from webhook.documents import DOCUMENT_LIMITS, Document, DocumentLimits
from webhook.inputs.kustomizations import CHART, KUSTOMIZATIONS, patches_of
from webhook.policy.document import SUFFIXES
from webhook.policy.errors import Problem, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

    from webhook.base.globs import Globs

STDIN: Final = "-"
_NEVER: Final = frozenset({"node_modules"})
"""Folders with third-party files, which are never read."""

_DOCUMENT: Final = re.compile(rb"^---(?=[ \t\r\n])", re.MULTILINE)
"""The start of a YAML document: at the margin, no text and no bracket contains this."""

_RENDERABLE: Final = frozenset({*KUSTOMIZATIONS, CHART})


class ManifestFile(msgspec.Struct, frozen=True):
    """A file to read.

    Attributes:
        file: the path as given; ``-`` is standard input.
        in_folder: whether the file was found in a given folder.
        size: the size in bytes, if known.
        data: the content, or the part of it; None if not read yet.
        documents: the parsed content; then ``data`` is empty.
        line, begin: the line and the index at which ``data`` starts, if it is a part of the file.
        limits: the limits of the file, or of this part.
    """

    file: str
    in_folder: bool = False
    size: int = 0
    data: bytes | memoryview | None = None
    documents: tuple[Document, ...] | None = None
    line: int = 1
    begin: int = 0
    limits: DocumentLimits = DOCUMENT_LIMITS

    def read(self) -> bytes | memoryview:
        """Return the content, or enough of it to show that it is too large."""
        if self.data is not None:
            return self.data
        return read_file(self.file, pipes=not self.in_folder, whole=False)

    def split(self, count: int) -> list[ManifestFile]:
        """Split a YAML file into up to ``count`` parts of similar size, each of whole documents.

        A part has its share of the limits. If it can't be read, only the whole file shows why, and where.
        """
        if count == 1 or self.documents is not None:
            return [self]
        try:
            data = bytes(self.read())
        except OSError:
            return [self]
        if len(data) > DOCUMENT_LIMITS.size or data.lstrip().startswith((b"{", b"[")):  # it may be JSON
            return [self]
        wanted = (_DOCUMENT.search(data, len(data) * number // count) for number in range(1, count))
        cuts = sorted({0, *(start.start() for start in wanted if start)})
        limits = DocumentLimits(
            **{name: getattr(DOCUMENT_LIMITS, name) // len(cuts) for name in ("nodes", "aliased", "documents")}
        )
        parts, line, begin = [], 1, 0
        for cut, end in pairwise((*cuts, len(data))):
            part = memoryview(data)[cut:end]  # copies would take as much memory as the file
            parts.append(replace(self, size=len(part), data=part, line=line, begin=begin, limits=limits))
            line += data.count(b"\n", cut, end)
            begin += len(str(part, "utf-8-sig", "replace"))
        return parts


class ManifestFiles(msgspec.Struct):
    """The files below the paths.

    Attributes:
        files: the files, in the order of the paths and by name below a folder.
        left_to_others: Helm templates and patches of kustomizations.
        renderable: kustomizations and chart files in folders.
        problems: folders and files that can't be read.
        dangling: broken links in folders: there is nothing to evaluate, but the cluster's state may be incomplete.
        left_out: links to folders elsewhere, which aren't followed.
        folders: the real folders of the files and their links.
    """

    files: list[ManifestFile] = []
    left_to_others: list[str] = []
    renderable: list[str] = []
    problems: list[Problem] = []
    dangling: list[Problem] = []
    left_out: list[Path] = []
    folders: set[str] = set()

    def leave_out(self, rendered: Collection[str]) -> None:
        """Omit the files that rendering read, by their real paths, except given files."""
        self.files = [source for source in self.files if not source.in_folder or realpath(source.file) not in rendered]
        self.left_to_others = [name for name in self.left_to_others if realpath(name) not in rendered]


class Ignored(msgspec.Struct, frozen=True):
    """The files and folders that the user ignores.

    Attributes:
        globs: globs of names and paths.
        folder: another folder that paths can be relative to; empty for none.
    """

    globs: Globs
    folder: str = ""

    def covers(self, path: Path, top: Path) -> bool:
        """Return whether a glob matches the name of a file or folder, its path, or its path below ``top``."""
        if not self.globs:
            return False
        below = path.relative_to(top).as_posix()
        project = Path(os.path.relpath(path, self.folder)).as_posix() if self.folder else below
        return any(map(self.globs.match, (path.name, str(path), below, project)))

    def covers_given(self, path: Path) -> bool:
        """Return whether a glob matches a given path or a parent folder, up to the project's or working folder."""
        if not self.globs:
            return False
        base = Path(self.folder or Path.cwd())
        whole = Path(os.path.abspath(path))  # noqa: PTH100 - a link stays one
        inside = (parent for parent in (whole, *whole.parents) if parent != base and parent.is_relative_to(base))
        return any(self.covers(place, place.parent) for place in (path, *map(Path, map(os.path.relpath, inside))))


def find_manifest_files(paths: Iterable[str | Path], ignored: Ignored) -> ManifestFiles:
    """Return the files for `read_manifests`, each once, even if several links or spellings lead to it.

    Prefer a file's real path to a link: Git and reviewers know the file by it.
    """
    manifest_files = ManifestFiles()
    files: dict[Hashable, ManifestFile] = {}
    for identity, source in _files(paths, ignored, manifest_files):
        first = files.setdefault(identity, source)
        if first is not source and Path(first.file).is_symlink() and not Path(source.file).is_symlink():
            del files[identity]
            files[identity] = replace(source, in_folder=source.in_folder and first.in_folder)
    patches = patches_of(_kustomizations_above(manifest_files.folders))
    for source in files.values():
        if patches and realpath(source.file) in patches:
            manifest_files.left_to_others.append(source.file)
        else:
            manifest_files.files.append(source)
    return manifest_files


def _files(
    paths: Iterable[str | Path], ignored: Ignored, manifest_files: ManifestFiles
) -> Iterator[tuple[Hashable, ManifestFile]]:
    for text in map(str, paths):
        path = Path(text)
        if text != STDIN and ignored.covers_given(path):
            continue
        if path.is_dir():
            yield from _below(path, ignored, manifest_files)
        elif text == STDIN:
            data = sys.stdin.buffer.read(DOCUMENT_LIMITS.size + 1)
            yield text, ManifestFile(text, size=len(data), data=data)
        elif path.is_file():
            status = path.stat()
            manifest_files.folders |= {realpath(path.parent), dirname(realpath(path))}
            yield (status.st_dev, status.st_ino), ManifestFile(text, size=status.st_size)
        else:  # reads a named pipe: `check <(helm template chart/)`
            yield text, ManifestFile(text)


def _below(top: Path, ignored: Ignored, manifest_files: ManifestFiles) -> Iterator[tuple[Hashable, ManifestFile]]:
    real = realpath(top)
    below = [str(top)]
    while below:
        folder = below.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            manifest_files.problems.append(unreadable(folder, error))
            continue
        folders = [entry for entry in entries if _is_folder(entry) and is_wanted(Path(entry.path), top, ignored)]
        for link in filter(os.DirEntry.is_symlink, folders):
            if not Path(realpath(link)).is_relative_to(real):  # otherwise it is read at its real path
                manifest_files.left_out.append(Path(link))
        below += (_shown(entry) for entry in reversed(folders) if not entry.is_symlink())
        files = [
            file for file in entries if not _is_folder(file) and (is_manifest(file.name) or file.name in _RENDERABLE)
        ]
        if ignored.globs:
            files = [file for file in files if not ignored.covers(Path(file.path), top)]
        manifest_files.renderable += (_shown(file) for file in files if file.name in _RENDERABLE)
        files = [file for file in files if is_manifest(file.name)]
        if files and holds_helm_templates(Path(folder).absolute(), Path.is_file):
            manifest_files.left_to_others += map(_shown, files)
        elif files:
            yield from _inside(folder, files, manifest_files)


def _inside(
    folder: str, files: list[os.DirEntry[str]], manifest_files: ManifestFiles
) -> Iterator[tuple[Hashable, ManifestFile]]:
    links = filter(os.DirEntry.is_symlink, files)
    manifest_files.folders |= {realpath(folder), *(dirname(realpath(link)) for link in links)}
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            dangling = isinstance(error, FileNotFoundError) and file.is_symlink()
            (manifest_files.dangling if dangling else manifest_files.problems).append(unreadable(_shown(file), error))
            continue
        if stat.S_ISREG(status.st_mode):  # reading a pipe would block
            yield (status.st_dev, status.st_ino), ManifestFile(_shown(file), in_folder=True, size=status.st_size)


def _shown(entry: os.DirEntry[str]) -> str:
    """Return the path of an entry like `pathlib`, without a leading ``./``."""
    return entry.path.removeprefix("./")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one. A broken link is not."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112 - for many files


def is_wanted(path: Path, top: Path, ignored: Ignored) -> bool:
    """Return whether a file or folder below ``top`` is neither hidden, third-party, nor ignored."""
    return not path.name.startswith(".") and path.name not in _NEVER and not ignored.covers(path, top)


def is_manifest(name: str) -> bool:
    """Return whether a file with this name is visible, and has the suffix of a manifest."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def holds_helm_templates(folder: Path, is_file: Callable[[Path], bool]) -> bool:
    """Return whether the folder is ``templates`` next to a ``Chart.yaml``, or below one."""
    return any(parent.name == "templates" and is_file(parent.parent / CHART) for parent in (folder, *folder.parents))


def within_repository(folder: Path) -> Iterator[Path]:
    """Yield a folder and its parents, up to the root of its Git repository."""
    for parent in (folder, *folder.parents):
        yield parent
        if (parent / ".git").exists():
            return


def _kustomizations_above(folders: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each kustomization in these folders and their parents, within the repository."""
    seen: set[str] = set()
    for folder in folders:
        for parent in within_repository(Path(folder)):
            if str(parent) in seen:
                break
            seen.add(str(parent))
            for file in (parent / name for name in KUSTOMIZATIONS):
                with suppress(OSError):  # usually it doesn't exist
                    yield str(file), read_file(file)
