"""Read the manifests to evaluate: files, folders, standard input, and the output of kustomize and Helm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.base.globs import Globs
from webhook.base.terminal import complain
from webhook.inputs.files import Ignored, ManifestFile, ManifestFiles, find_manifest_files
from webhook.inputs.kustomizations import KUSTOMIZE_GROUP, Root, roots_of
from webhook.inputs.objects import Manifest, Manifests, read_manifest_files, written_identity
from webhook.inputs.project import folder_of, repository_of
from webhook.inputs.state import with_listed_pools
from webhook.policy.errors import Problem, escaped_name, problem_lines
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence
    from pathlib import Path

    from webhook.capacity.providers.provider import Provider
    from webhook.inputs.changes import Changes
    from webhook.inputs.options import JudgingOptions


class Inputs:
    """The manifests of the flags.

    Attributes:
        sources: files and rendered documents.
        problems: inputs that can't be found, read, or rendered.
        not_rendered: kustomizations and charts that stay unrendered on purpose.
        skipped: the number of skipped Helm templates.

    Raise CannotJudgeError if Git fails.
    """

    def __init__(self, options: JudgingOptions, providers: Collection[Provider]) -> None:
        self._options = options
        self._providers = providers
        ignored = Ignored(Globs(options.ignore), options.project)
        manifest_files = find_manifest_files(options.paths, ignored)
        for link in manifest_files.left_out:
            target = escaped_name(os.path.realpath(link))
            text = f"is a link to a folder elsewhere, and is not followed; to read it, pass {target} too"
            complain(f"{escaped_name(str(link))}: warning: {text}")
        for problem in manifest_files.dangling:
            complain(f"{problem.file}: warning: {problem.text}")
        self.problems = list(manifest_files.problems)
        self.not_rendered: list[Problem] = []
        self._reads: dict[str, frozenset[str]] = {}
        self._rendered: list[ManifestFile] = []
        if manifest_files.renderable or options.kustomize or options.helm:
            self._render(manifest_files)
        self.sources = [*manifest_files.files, *self._rendered]
        self.skipped = len(manifest_files.left_to_others)
        self._changed = self._changes("--changed-since", options.changed_since, ignored)
        self._base = self._changes("--against", options.against, ignored)

    def _render(self, manifest_files: ManifestFiles) -> None:
        """Render the folders that the flags name or the search found, and omit the files that they read."""
        options = self._options
        flags = (*((folder, False) for folder in options.kustomize), *((folder, True) for folder in options.helm))
        named = {os.path.realpath(folder): (folder, is_chart) for folder, is_chart in flags}
        roots = []
        for root in roots_of(manifest_files.renderable, _boundary(folder_of(options))):
            if named.pop(os.path.realpath(root.folder), None):
                roots.append(replace(root, place=root.folder, refused="", trusted=True))
            elif options.render:
                roots.append(root)
            else:
                self.not_rendered.append(Problem(escaped_name(root.place), 0, 0, "", _NOT_RENDERED))
        roots += (Root(folder=path, place=path, is_chart=is_chart, trusted=True) for path, is_chart in named.values())
        if self.not_rendered:
            complain(*(f"warning: {line}" for line in problem_lines(self.not_rendered)))
        if not roots:
            return
        from webhook.inputs.rendering import Rendering

        done = Rendering(roots, options)
        self.problems += done.problems
        self._rendered = done.sources
        self._reads = {root.command: root.reads for root in done.rendered}
        manifest_files.leave_out(frozenset().union(*self._reads.values()))

    def _changes(self, flag: str, ref: str | None, ignored: Ignored) -> Changes | None:
        if ref is None:
            return None
        from webhook.inputs.changes import Changes
        from webhook.inputs.git import base_of

        base, paths = base_of(flag, ref, folder_of(self._options)), self._options.paths
        return Changes(base, paths=paths, ignored=ignored, read=self._read, rendered=self._reads)

    def _read(self, sources: Iterable[ManifestFile]) -> Manifests:
        manifests = read_objects(sources)
        return replace(manifests, objects=with_listed_pools(manifests.objects, self._providers))

    def read(self, sources: Iterable[ManifestFile]) -> Manifests:
        """Read these sources."""
        manifests = self._read(sources)
        in_folders = {escaped_name(source.file) for source in sources if source.in_folder}
        manifests.problems = [_or_ignored(problem, in_folders) for problem in manifests.problems]
        return manifests

    @property
    def stored(self) -> list[Manifest]:
        """Return the previous objects of changed files, which the cluster has, according to Git."""
        return [] if self._base is None else self._base.old

    def is_stored(self, manifest: Manifest) -> bool:
        """Return whether the cluster has this object unchanged, because Git reports its file as unchanged."""
        return self._base is not None and bool(manifest.name) and self._base.is_unchanged(manifest)

    def requests(self, objects: Iterable[Manifest]) -> list[tuple[Manifest, str]]:
        """Return each object with the operation that the API server would get."""
        known = {written_identity(manifest) for manifest in self.stored if manifest.name}

        def operation_of(manifest: Manifest) -> str:
            return "UPDATE" if self.is_stored(manifest) or (known and written_identity(manifest) in known) else "CREATE"

        return [(manifest, self._options.operation or operation_of(manifest)) for manifest in objects]

    def removals(self, manifests: Manifests) -> list[tuple[Manifest, str]]:
        """Return the objects that are no longer in the files, each with its operation."""
        if self._base is None:
            return []
        given = set(map(written_identity, manifests.objects))
        unread = tuple(f"{problem.file}/" for problem in (*self.problems, *manifests.problems))
        removed = {
            written_identity(manifest): manifest
            for manifest in self._base.old
            if manifest.name and written_identity(manifest) not in given and not f"{manifest.file}/".startswith(unread)
        }
        return [(manifest, "DELETE") for manifest in self._base.removed_everywhere(removed.values())] if removed else []

    def is_judged(self, manifest: Manifest, operation: str = "") -> bool:
        """Return whether to evaluate a request: with ``--changed-since``, only changes."""
        return self._changed is None or self.is_removed(operation) or self._changed.touches(manifest)

    def is_removed(self, operation: str) -> bool:
        """Return whether an object is deleted because it is no longer in the files."""
        return self._base is not None and operation == "DELETE"


_NOT_RENDERED: Final = (
    "is not rendered, and its files are evaluated as they are; to evaluate the rendered objects, run "
    "`kustomize build DIR | spotgate check -` or `helm template DIR | spotgate check -`"
)


def _boundary(folder: Path) -> str:
    """Return the real folder that limits rendering: the repository, or without Git the working or the given folder."""
    working, root = os.path.realpath("."), repository_of(folder)
    return working if not os.path.lexists(f"{root}/.git") and f"{root}/".startswith(f"{working}/") else root


def together(parts: Sequence[Manifests]) -> Manifests:
    """Merge the parts in their order."""
    return Manifests(
        objects=[manifest for part in parts for manifest in part.objects],
        skipped=sum(part.skipped for part in parts),
        problems=[problem for part in parts for problem in part.problems],
        unread=[missing for part in parts for missing in part.unread],
    )


def _or_ignored(problem: Problem, in_folders: Container[str]) -> Problem:
    """Return the problem. If it concerns a whole document in a folder, suggest ignoring the file."""
    if problem.field or problem.file not in in_folders:
        return problem
    return replace(problem, text=f"{problem.text}; or leave the file out with --ignore")


_NOT_APPLIED: Final = frozenset({API_VERSION.partition("/")[0], KUSTOMIZE_GROUP})


def read_objects(sources: Iterable[ManifestFile]) -> Manifests:
    """Return the objects of the sources except policies and kustomizations."""
    manifests = Manifests()
    read_manifest_files(sources, manifests)
    objects = [manifest for manifest in manifests.objects if manifest.group not in _NOT_APPLIED]
    return replace(manifests, objects=objects, skipped=manifests.skipped + len(manifests.objects) - len(objects))


def place_of(manifest: Manifest) -> str:
    """Return the file and the line of an object."""
    return f"{manifest.file}:{manifest.line}"
