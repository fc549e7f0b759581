"""The files that manifests are read from: below folders, and standard input."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.documents import LIMITS
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.globs import Globs

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
_PAGE: Final = 64 * 1024


class Source(msgspec.Struct, frozen=True):
    """A file to read, or a part of one: whole documents.

    Attributes:
        file: as it was given; ``-`` is standard input.
        in_folder: a folder was given, and not the file itself.
        size: bytes, as far as it is known.
        data: what is in it; None: that is yet to be read.
        whole: it is not a part.
        line: how many lines of the file are before ``data``.
        begin: how many characters of the file are before ``data``.
    """

    file: str
    in_folder: bool = False
    size: int = 0
    data: bytes | None = None
    whole: bool = True
    line: int = 0
    begin: int = 0

    def read(self) -> bytes:
        """All of it, or as much as shows that it is too large."""
        if self.data is not None:
            return self.data
        if self.file == STDIN:
            return sys.stdin.buffer.read(LIMITS.size + 1)
        with Path(self.file).open("rb") as opened:
            begin = opened.read(_PAGE)  # to ask for more than there is costs its memory
            return begin if len(begin) < _PAGE else begin + opened.read(LIMITS.size + 1 - _PAGE)

    def taken_in(self) -> Source:
        """The same with its data; as it is if it can't be read, which is said where all files are."""
        try:
            data = self.read()
        except OSError:
            return self
        return replace(self, data=data, size=len(data))


class Sources(msgspec.Struct):
    """What was found below the paths.

    Attributes:
        files: in the order of the paths, and of their names below a folder.
        skipped: Helm templates.
        problems: folders and files that can't be read.
    """

    files: list[Source] = []
    skipped: int = 0
    problems: list[Problem] = []


def find_sources(paths: Iterable[str | Path], ignore: Globs) -> Sources:
    """The files that `read_manifests` reads, each once."""
    found = Sources()
    found.files = list({source.file: source for source in _sources(paths, ignore, found)}.values())
    return found


def _sources(paths: Iterable[str | Path], ignore: Globs, found: Sources) -> Iterator[Source]:
    for text in map(str, paths):
        path = Path(text)
        if ignore.match(text) or ignore.match(path.name):
            continue
        if path.is_dir():
            yield from _below(path, ignore, found)
        elif text == STDIN:
            yield Source(text).taken_in()
        else:
            yield Source(text, size=path.stat().st_size if path.is_file() else 0)


def _below(top: Path, ignore: Globs, found: Sources) -> Iterator[Source]:
    def pass_over(error: OSError) -> None:
        found.problems.append(unreadable(printable(str(error.filename)), error))

    def wanted(path: Path) -> bool:
        if path.name.startswith("."):
            return False
        return not ignore or not any(map(ignore.match, (path.name, str(path), path.relative_to(top).as_posix())))

    for parent, folders, names in os.walk(top, onerror=pass_over):
        folder = Path(parent)
        folders[:] = sorted(name for name in folders if wanted(folder / name))
        files = [path for name in sorted(names) if name.endswith(SUFFIXES) and wanted(path := folder / name)]
        if files and _holds_helm_templates(folder):
            found.skipped += len(files)
            continue
        for file in files:
            try:
                status = file.stat()
                if stat.S_ISREG(status.st_mode):  # a pipe would be waited for
                    yield Source(str(file), in_folder=True, size=status.st_size)
            except OSError as error:
                pass_over(error)


def _holds_helm_templates(folder: Path) -> bool:
    """Is the folder ``templates`` beside a ``Chart.yaml``, or below one?"""
    folder = folder.absolute()
    return any(
        each.name == "templates" and (each.parent / "Chart.yaml").is_file() for each in (folder, *folder.parents)
    )


def printable(file: str) -> str:
    """The name of a file, with what in it is not UTF-8 escaped."""
    return file.encode(errors="backslashreplace").decode()


def unreadable(file: str, error: OSError) -> Problem:
    """What is said of a file that the system does not let us read."""
    return Problem(file, 0, 0, "", f"can't be read: {error.strerror or error}")
