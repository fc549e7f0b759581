"""Objects as a branch found them in Git: which of them it changes, adds and removes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from webhook.cli.judging.git import base_of
from webhook.cli.judging.judge import written_identity
from webhook.cli.terminal import complain
from webhook.manifests.files import Source, is_wanted, is_wanted_file
from webhook.manifests.objects import Manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from webhook.cli.judging.judge import Identity
    from webhook.manifests.files import Ignored
    from webhook.manifests.objects import Manifest

_CHART: Final = "Chart.yaml"

Read: TypeAlias = "Callable[[Iterable[Source], Manifests], None]"


class Changes:
    """What the working tree has changed since a branch left another one. What Git does not have there is new.

    Args:
        flag: that asks for it, for errors.
        ref: the other branch, or any commit.
        folder: in the repository.
        paths: files and folders; others are not looked at.
        ignored: what is to be left out of them.
        read: adds the objects of a file.

    Raises:
        CannotJudgeError: Git can't tell.
    """

    def __init__(
        self, flag: str, ref: str, *, folder: Path, paths: Sequence[str], ignored: Ignored, read: Read
    ) -> None:
        self._base = base_of(flag, ref, folder)
        self._ignored = ignored
        tops = (Path(path) for path in paths)
        self._tops = [(top, self._path(str(top))) for top in tops if not ignored.covers_given(top)]
        self._unchanged: dict[str, bool] = {}
        self._read = read
        self._old = self._read_old(ref)
        self._texts = {_text(each) for each in self._old}

    def _read_old(self, ref: str) -> list[Manifest]:
        """The objects that were in the files that have changed since."""
        sources = {
            path: source for path in self._base.changed & self._base.files.keys() if (source := self._source(path))
        }
        found = Manifests()
        contents = self._base.read(sorted(sources))
        self._read([replace(sources[path], size=len(data), data=data) for path, data in contents], found)
        for problem in found.problems:
            complain(f"warning: where the branch left {ref}: {problem}")
        return found.objects

    def touches(self, manifest: Manifest) -> bool:
        """Has the document, or the item of a list, been changed or added? One that was only moved has not."""
        return not self._is_unchanged(manifest.file) and _text(manifest) not in self._texts

    def stored(self, objects: Iterable[Manifest]) -> dict[Identity, Manifest]:
        """What was there of the files that these objects are from; objects that have no name yet are left out."""
        kept = (each for each in objects if self._is_unchanged(each.file))
        return {written_identity(each): each for each in (*self._old, *kept) if each.name}

    def removed_everywhere(self, removed: Iterable[Manifest]) -> list[Manifest]:
        """Those of the objects that no other file of the repository has now. Of the others standard error says where.

        Args:
            removed: what the files below the paths have no longer.
        """
        found = Manifests()
        self._read(self._elsewhere(), found)
        places = {written_identity(each): f"{each.file}:{each.line}" for each in found.objects}
        gone = []
        for each in removed:
            if (place := places.get(written_identity(each))) is None:
                gone.append(each)
                continue
            text = f"{each.kind} {each.name} is at {place} now, outside of what was given, and is not judged"
            complain(f"{each.file}:{each.line}: warning: {text}; pass that file too")
        return gone

    def _elsewhere(self) -> Iterator[Source]:
        """Files of the repository, outside of the paths, that were changed or added."""
        root = self._base.root
        for path in sorted({*self._base.changed, *self._base.new()}):
            file = root / path
            if self._source(path) is None and self._is_wanted(path, file, root) and file.is_file():
                yield Source(os.path.relpath(file), in_folder=True)

    def _is_unchanged(self, file: str) -> bool:
        if file not in self._unchanged:
            path = self._path(file)
            self._unchanged[file] = path in self._base.files and path not in self._base.changed
        return self._unchanged[file]

    def _path(self, file: str) -> str:
        """From the root of the repository; one that is elsewhere begins with ``..``."""
        return Path(os.path.relpath(os.path.realpath(file), self._base.root)).as_posix()

    def _source(self, path: str) -> Source | None:
        """The file as it would be found below the paths; None: it would not."""
        for top, of_top in self._tops:
            if path == of_top:
                return Source(str(top))
            below = path if of_top == "." else path.removeprefix(f"{of_top}/")
            if below == path and of_top != ".":
                continue
            file = top / below
            if self._is_wanted(path, file, top):
                return Source(str(file), in_folder=True)
        return None

    def _is_wanted(self, path: str, file: Path, top: Path) -> bool:
        """Is the file with this path in the repository one that is read where ``top`` is given?"""
        folders = list(file.parents)[: len(file.relative_to(top).parts) - 1]
        return (
            is_wanted_file(file, top, self._ignored)
            and all(is_wanted(folder, top, self._ignored) for folder in folders)
            and not self._is_helm_template(path)
        )

    def _is_helm_template(self, path: str) -> bool:
        return any(
            folder.name == "templates" and (folder.parent / _CHART).as_posix() in self._base.files
            for folder in Path(path).parents
        )


def _text(manifest: Manifest) -> str:
    """The document, however its lines end: Git may keep other line ends than the working tree has. Or the item."""
    if manifest.path:
        return json.dumps(manifest.value)
    return manifest.document.source.replace("\r\n", "\n")
