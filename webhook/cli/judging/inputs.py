"""What is judged: manifests in files and folders, on standard input, or rendered by kustomize and Helm."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from webhook.cli.judging.judge import written_identity
from webhook.cli.judging.parallel import chunks_of, in_processes
from webhook.cli.judging.project import folder_of
from webhook.documents import DocumentError
from webhook.globs import Globs
from webhook.manifests.files import Ignored, find_manifest_files
from webhook.manifests.objects import Manifests, read_manifest_files
from webhook.manifests.pool_lists import with_listed_pools
from webhook.policy.errors import printable
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Iterable

    from webhook.capacity.providers.provider import Provider
    from webhook.cli.judging.changes import Changes
    from webhook.manifests.files import ManifestFile
    from webhook.manifests.objects import Manifest
    from webhook.policy.errors import Problem


class Requests(msgspec.Struct, frozen=True):
    """Hold the requests that the API server would get.

    Attributes:
        stored: the objects that the cluster has before, as far as Git knows them.
    """

    objects: list[Manifest]
    operations: list[str]
    stored: list[Manifest]


class Inputs:
    """Hold the manifests that the flags name.

    Attributes:
        sources: files and rendered documents.
        problems: what can't be found, read or rendered.
        skipped: number of files that are Helm templates.

    Raise CannotJudgeError if Git can't tell what has changed.
    """

    def __init__(self, options: Namespace, providers: Collection[Provider]) -> None:
        self._options = options
        self._providers = providers
        ignored = Ignored(Globs(options.ignore), options.project)
        found = find_manifest_files(options.paths, ignored)
        for link in found.left_out:
            target = printable(os.path.realpath(link))
            text = f"is a link to a folder elsewhere, and is not followed; pass {target} too, if it is meant"
            print(f"{printable(str(link))}: warning: {text}", file=sys.stderr)
        self.problems = list(found.problems)
        self.sources = found.files
        if options.kustomize or options.helm:
            from webhook.cli.judging.rendering import rendered  # noqa: PLC0415 - for few

            self.sources += rendered(options, self.problems)
        self.skipped = found.skipped
        self._changed = self._changes("--changed-since", options.changed_since, ignored)
        self._base = self._changes("--against", options.against, ignored)

    def _changes(self, flag: str, ref: str | None, ignored: Ignored) -> Changes | None:
        if ref is None:
            return None
        from webhook.cli.judging.changes import Changes  # noqa: PLC0415 - for few

        paths = self._options.paths
        return Changes(flag, ref, folder=folder_of(self._options), paths=paths, ignored=ignored, read=self._read)

    def _read(self, sources: Iterable[ManifestFile], found: Manifests) -> None:
        read_objects(sources, found)
        found.objects = with_listed_pools(found.objects, self._providers)

    def read(self) -> Manifests:
        """Read all sources, in several processes where they are large."""
        # What is read stays: looking for garbage among it is a tenth of the time.
        gc.disable()
        try:
            chunks = in_processes(_read_chunk, chunks_of(self.sources), "reading")
            if None in chunks:
                chunks = [_read_chunk(self.sources)]
        finally:
            gc.freeze()
            gc.enable()
        found = Manifests()
        for chunk in filter(None, chunks):
            found.objects += chunk.objects
            found.problems += chunk.problems
            found.unread += chunk.unread
            found.skipped += chunk.skipped
        found.objects = with_listed_pools(found.objects, self._providers)
        in_folders = {printable(each.file) for each in self.sources if each.in_folder}
        found.problems = [_or_ignored(each) if each.file in in_folders else each for each in found.problems]
        return found

    def requests(self, found: Manifests) -> Requests:
        """Return the requests that applying the objects makes, and with ``--against`` those that delete others."""
        objects = found.objects
        stored = {} if self._base is None else self._base.stored(objects)
        given = {written_identity(each) for each in objects} if stored else set()
        unread = tuple(problem.file for problem in (*self.problems, *found.problems))
        removed = [
            each
            for identity, each in stored.items()
            if identity not in given and not any(f"{each.file}/".startswith(f"{file}/") for file in unread)
        ]
        if self._base is not None and removed:
            removed = self._base.removed_everywhere(removed)
        operations = [
            self._options.operation or ("UPDATE" if stored and written_identity(each) in stored else "CREATE")
            for each in objects
        ]
        return Requests([*objects, *removed], [*operations, *["DELETE"] * len(removed)], list(stored.values()))

    def is_judged(self, manifest: Manifest, operation: str) -> bool:
        """Return whether a request is judged: with ``--changed-since`` only changes are."""
        return self._changed is None or self.is_removed(operation) or self._changed.touches(manifest)

    def is_removed(self, operation: str) -> bool:
        """Return whether an object is deleted because the files no longer have it."""
        return self._base is not None and operation == "DELETE"


def _or_ignored(problem: Problem) -> Problem:
    """Return the problem of a whole document in a folder, and say how to leave its file out."""
    if problem.field:
        return problem
    return replace(problem, text=f"{problem.text}; or leave the file out with --ignore")


def read_objects(sources: Iterable[ManifestFile], found: Manifests) -> None:
    """Add the objects of the sources, without spotgate's own policy files."""
    read_manifest_files(sources, found)
    objects = [each for each in found.objects if each.group != API_VERSION.partition("/")[0]]
    found.skipped += len(found.objects) - len(objects)
    found.objects = objects


def _read_chunk(sources: list[ManifestFile]) -> Manifests | None:
    """Read some sources. Return None if part of a file is broken: its problem is told of the whole file."""
    found = Manifests()
    try:
        read_objects(sources, found)
    except DocumentError:
        return None
    return found
