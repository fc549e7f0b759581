"""Read what is judged: manifests in files and folders, on standard input, or rendered by kustomize and Helm."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.cli.judging.judge import written_identity
from webhook.cli.judging.project import folder_of
from webhook.decision import ENGINE, Finding, Outcome
from webhook.globs import Globs
from webhook.manifests.files import Ignored, find_manifest_files
from webhook.manifests.objects import Manifests, read_manifest_files
from webhook.manifests.state import with_listed_pools
from webhook.policy.errors import escaped_name
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Iterable, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.cli.judging.changes import Changes
    from webhook.cli.judging.judge import Identity
    from webhook.manifests.files import ManifestFile
    from webhook.manifests.objects import Manifest
    from webhook.policy.errors import Problem


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
            target = escaped_name(os.path.realpath(link))
            text = f"is a link to a folder elsewhere, and is not followed; pass {target} too, if it is meant"
            print(f"{escaped_name(str(link))}: warning: {text}", file=sys.stderr)
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

    def _read(self, sources: Iterable[ManifestFile]) -> Manifests:
        found = read_objects(sources)
        return replace(found, objects=with_listed_pools(found.objects, self._providers))

    def read(self, sources: Iterable[ManifestFile]) -> Manifests:
        """Read some sources. Raise DocumentError if a part of a file is broken."""
        found = self._read(sources)
        in_folders = {escaped_name(each.file) for each in sources if each.in_folder}
        found.problems = [_or_ignored(each) if each.file in in_folders else each for each in found.problems]
        return found

    @property
    def stored(self) -> list[Manifest]:
        """Return the objects that the cluster has from files that have changed since, as far as Git knows them."""
        return [] if self._base is None else self._base.old

    @property
    def compares(self) -> bool:
        """Return whether the names of all objects count: with ``--against`` one that is missing is deleted."""
        return self._base is not None

    def is_stored(self, manifest: Manifest) -> bool:
        """Return whether the cluster has the object as it is: Git says that its file has not changed."""
        return self._base is not None and bool(manifest.name) and self._base.is_unchanged(manifest.file)

    def requests(self, objects: Iterable[Manifest]) -> list[tuple[Manifest, str]]:
        """Return each object with the operation by which the API server would get it."""
        stored = {written_identity(each) for each in self.stored if each.name}

        def operation_of(each: Manifest) -> str:
            return "UPDATE" if self.is_stored(each) or (stored and written_identity(each) in stored) else "CREATE"

        return [(each, self._options.operation or operation_of(each)) for each in objects]

    def removals(self, found: Manifests) -> list[tuple[Manifest, str]]:
        """Return the objects that the files no longer have, each with its operation."""
        if self._base is None:
            return []
        given = set(map(written_identity, found.objects))
        unread = tuple(f"{problem.file}/" for problem in (*self.problems, *found.problems))
        removed = {
            written_identity(each): each
            for each in self._base.old
            if each.name and written_identity(each) not in given and not f"{each.file}/".startswith(unread)
        }
        return [(each, "DELETE") for each in self._base.removed_everywhere(removed.values())] if removed else []

    def is_judged(self, manifest: Manifest, operation: str = "") -> bool:
        """Return whether a request is judged: with ``--changed-since`` only changes are."""
        return self._changed is None or self.is_removed(operation) or self._changed.touches(manifest)

    def is_removed(self, operation: str) -> bool:
        """Return whether an object is deleted because the files no longer have it."""
        return self._base is not None and operation == "DELETE"


def together(parts: Sequence[Manifests]) -> Manifests:
    """Return everything that was read, in the order of the parts."""
    return Manifests(
        objects=[each for part in parts for each in part.objects],
        skipped=sum(part.skipped for part in parts),
        problems=[each for part in parts for each in part.problems],
        unread=[each for part in parts for each in part.unread],
    )


def _or_ignored(problem: Problem) -> Problem:
    """Return the problem of a whole document in a folder, and say how to leave its file out."""
    if problem.field:
        return problem
    return replace(problem, text=f"{problem.text}; or leave the file out with --ignore")


def read_objects(sources: Iterable[ManifestFile]) -> Manifests:
    """Return the objects of the sources, without spotgate's own policy files."""
    found = Manifests()
    read_manifest_files(sources, found)
    objects = [each for each in found.objects if each.group != API_VERSION.partition("/")[0]]
    found.skipped += len(found.objects) - len(objects)
    found.objects = objects
    return found


_LISTED: Final = 5
"""Places that a finding names; it counts the rest."""


class Places:
    """Hold the places of node pools, and the first of those that are judged."""

    def __init__(self, pools: Iterable[Manifest], judged: Iterable[Manifest]) -> None:
        self._places: dict[Identity, dict[str, None]] = {}
        self._first: dict[Identity, str] = {}
        for each in pools:
            self._places.setdefault(written_identity(each), {})[_place(each)] = None
        for each in judged:
            self._first.setdefault(written_identity(each), _place(each))

    def duplicate(self, manifest: Manifest) -> Finding | None:
        """Return a finding at the first judged place of a node pool that is at several places, or None."""
        identity = written_identity(manifest)
        if identity not in self._places:
            return None
        place = _place(manifest)
        others = self._places[identity].keys() - {place}
        if not others or self._first[identity] != place:
            return None
        elsewhere = [each for each in self._places[identity] if each in others]
        rest = len(elsewhere) - _LISTED
        named = ", ".join([*elsewhere[:_LISTED], *([f"{rest} more places"] if rest > 0 else [])])
        return Finding(
            policy=ENGINE,
            id="object/duplicate",
            outcome=Outcome.WARN,
            reason=f"{manifest.kind} {manifest.name} is in the files more than once",
            field="metadata.name",
            detail=f"It is at {named} too. All files are judged as one cluster: the last one counts for "
            "all others, and the pools of both are taken for each other's fallback.",
            fix="judge each cluster by itself: one run for the folder of each",
        )


def _place(manifest: Manifest) -> str:
    return f"{manifest.file}:{manifest.line}"
