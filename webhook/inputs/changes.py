"""Find the objects that a branch changes, adds, and removes since its base commit in Git."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from webhook.base.terminal import complain
from webhook.inputs.files import Ignored, ManifestFile, holds_helm_templates, is_manifest, is_wanted
from webhook.inputs.kustomizations import Rendered, is_kustomization, patches_of
from webhook.inputs.objects import Manifest, Manifests, written_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from webhook.inputs.git import Base


Read: TypeAlias = "Callable[[Iterable[ManifestFile]], Manifests]"
RenderedFiles: TypeAlias = "Mapping[str, Collection[str]]"
"""The real paths of the files that rendering reads, by command."""


class Changes:
    """The changes of the working tree since its branch left another one. Untracked files are new.

    Attributes:
        old: the previous objects of changed files.

    Raise CannotJudgeError if Git fails.
    """

    def __init__(
        self, base: Base, *, paths: Sequence[str], ignored: Ignored, read: Read, rendered: RenderedFiles
    ) -> None:
        self._base = base
        self._ignored = ignored
        tops = (Path(path) for path in paths)
        self._tops = [(top, self._path(str(top))) for top in tops if not ignored.covers_given(top)]
        self._unchanged: dict[str, bool] = {}
        self._read = read
        self._rendered = rendered
        self.old = self._read_old()
        self._texts = {_text(manifest) for manifest in self.old}

    def _read_old(self) -> list[Manifest]:
        """Return the previous objects of changed files."""
        sources = {
            path: source for path in self._base.changed & self._base.files.keys() if (source := self._source(path))
        }
        for read in chain.from_iterable(self._rendered.values()):
            sources.pop(self._path(read), None)  # rendering renames these objects
        patches = patches_of(self._base.read(filter(is_kustomization, self._base.files))) if sources else frozenset()
        contents = self._base.read(sorted(sources.keys() - patches))
        manifests = self._read([replace(sources[path], size=len(data), data=data) for path, data in contents])
        for problem in manifests.problems:
            complain(f"warning: where the branch left {self._base.ref}: {problem}")
        return manifests.objects

    def touches(self, manifest: Manifest) -> bool:
        """Return whether the document or list item is new or changed. A moved one is neither."""
        if isinstance(manifest.document, Rendered):
            return not self.is_unchanged(manifest)
        return not self.is_unchanged(manifest) and _text(manifest) not in self._texts

    def removed_everywhere(self, removed: Iterable[Manifest]) -> list[Manifest]:
        """Return the removed objects that are in no other file of the repository. Warn about the moved ones."""
        manifests = self._read(list(self._elsewhere()))
        places = {written_identity(manifest): f"{manifest.file}:{manifest.line}" for manifest in manifests.objects}
        deleted = []
        for manifest in removed:
            if (place := places.get(written_identity(manifest))) is None:
                deleted.append(manifest)
                continue
            text = (
                f"{manifest.kind} {manifest.name} is at {place} now, outside of the given paths, and is not evaluated"
            )
            complain(f"{manifest.file}:{manifest.line}: warning: {text}; pass that file too")
        return deleted

    def _elsewhere(self) -> Iterator[ManifestFile]:
        """Yield changed and added files of the repository that are outside the paths."""
        root = self._base.root
        for path in sorted({*self._base.changed, *self._base.new()}):
            file = root / path
            if self._source(path) is None and self._is_wanted(path, file, root) and file.is_file():
                yield ManifestFile(os.path.relpath(file), in_folder=True)

    def is_unchanged(self, manifest: Manifest) -> bool:
        """Return whether the file, or every file that the rendering read, is the same as in the base commit."""
        document = manifest.document
        files = self._rendered[document.command] if isinstance(document, Rendered) else (manifest.file,)
        return bool(files) and all(map(self._is_unchanged, files))

    def _is_unchanged(self, file: str) -> bool:
        if file not in self._unchanged:
            path = self._path(file)
            self._unchanged[file] = path in self._base.files and path not in self._base.changed
        return self._unchanged[file]

    def _path(self, file: str) -> str:
        """Return the path of a file relative to the repository root. It starts with ``..`` if the file is outside."""
        return Path(os.path.relpath(os.path.realpath(file), self._base.root)).as_posix()

    def _source(self, path: str) -> ManifestFile | None:
        """Return the file as a search of the paths would find it, or None if it is not below them."""
        for top, top_path in self._tops:
            if path == top_path:
                return ManifestFile(str(top))
            below = path if top_path == "." else path.removeprefix(f"{top_path}/")
            if below == path and top_path != ".":
                continue
            file = top / below
            if self._is_wanted(path, file, top):
                return ManifestFile(str(file), in_folder=True)
        return None

    def _is_wanted(self, path: str, file: Path, top: Path) -> bool:
        """Return whether a search of ``top`` would read the file."""
        folders = list(file.parents)[: len(file.relative_to(top).parts) - 1]
        return (
            is_manifest(file.name)
            and all(is_wanted(place, top, self._ignored) for place in (file, *folders))
            and not holds_helm_templates(Path(path).parent, lambda chart: chart.as_posix() in self._base.files)
        )


def _text(manifest: Manifest) -> str:
    """Return the text of a document or list item. Git may store other line ends than the working tree."""
    if manifest.path:
        return json.dumps(manifest.value)
    return manifest.document.source.replace("\r\n", "\n")
