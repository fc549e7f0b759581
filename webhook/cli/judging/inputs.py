"""What ``check``, ``fix`` and ``explain`` have in common: which manifests, against which cluster, asked for by whom."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.provider import pool_resources
from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging.duplicates import Places
from webhook.cli.judging.judge import Judge, written_identity
from webhook.cli.judging.kinds import Kinds
from webhook.cli.judging.parallel import chunks_of, in_processes
from webhook.cli.judging.project import folder_of
from webhook.cli.options import read_policies
from webhook.context import Context, Phase, utc_now
from webhook.documents import DocumentError
from webhook.globs import Globs
from webhook.manifests.files import Ignored, find_sources
from webhook.manifests.objects import Manifests, read_manifests, read_sources
from webhook.manifests.state import view_of
from webhook.policy.errors import printable
from webhook.policy.terms import API_VERSION
from webhook.review import UserInfo

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping

    from webhook.bundle import Bundle
    from webhook.cli.judging.changes import Changes
    from webhook.cli.judging.judge import Judgement
    from webhook.cluster.protocol import ClusterView
    from webhook.manifests.files import Source
    from webhook.manifests.objects import Manifest
    from webhook.policy.errors import Problem

Report = TypeVar("Report")

_AT_ONCE: Final = 500
"""Objects that take as long to judge as it takes to start a process, several times over."""


class Judged(msgspec.Struct, frozen=True):
    """What came of the manifests.

    Attributes:
        objects: each with its judgement, in the order of the files.
        problems: what could not be read or judged; everything else was.
        skipped: documents that are no objects, Helm templates, and policy files.
        view: of the cluster.
    """

    bundle: Bundle
    objects: list[tuple[Manifest, Judgement]]
    problems: list[Problem]
    skipped: int
    view: ClusterView


def judge(options: Namespace, *, trace: bool = False) -> Judged:
    """Read and judge everything that the flags name.

    Args:
        options: of `add_inputs`, completed by `take_project_file`, and ``operation``: what is done with each object;
            None: what applying it would be.
        trace: keep how each judgement came about.

    Raises:
        CannotJudgeError: the policies, or the flags, are wrong.
    """
    court = Court(options, trace=trace)
    return court.prepare(court.read_all()).judge()


class Reported(msgspec.Struct, Generic[Report], frozen=True):
    """What is reported of the manifests.

    Attributes:
        reports: of each object, in the order of the files.
        problems, skipped: as in `Judged`.
    """

    bundle: Bundle
    reports: list[Report]
    problems: list[Problem]
    skipped: int


def judge_each(
    options: Namespace, report: Callable[[Judged], list[Report]], *, trace: bool = False
) -> Reported[Report]:
    """Judge as `judge` does, where it is much in several processes: these hand on the reports alone.

    Args:
        options, trace: as for `judge`.
        report: what is wanted of each object.

    Raises:
        CannotJudgeError: the policies, or the flags, are wrong; or a process ended before its time.
    """
    court = Court(options, trace=trace)
    prepared = court.prepare(court.read_all())
    count = len(prepared.objects)
    step = _AT_ONCE if prepared.divisible else max(count, 1)

    def judge_some(part: slice) -> tuple[list[Report], list[Problem]]:
        judged = prepared.judge(part)
        return report(judged), judged.problems

    parts = in_processes(judge_some, [slice(begin, begin + step) for begin in range(0, count, step)], "judging")
    return Reported(
        court.bundle,
        [each for reports, _ in parts for each in reports],
        [*prepared.problems, *(problem for _, problems in parts for problem in problems)],
        prepared.skipped,
    )


class Court:
    """The flags, and what is the same for all objects.

    Attributes:
        sources: where the objects are.
        problems: what can't be read of the folders and of the cluster's state.
        skipped: files that are Helm templates.
    """

    def __init__(self, options: Namespace, *, trace: bool = False) -> None:
        if problem := _contradiction(options):
            raise CannotJudgeError(f"error: {problem}")
        self._options = options
        self._context = Context(phase=Phase.VALIDATE, now=utc_now(), api_server=options.kubernetes_version, trace=trace)
        self.bundle = read_policies(options.policies)
        ignored = Ignored(Globs(options.ignore), options.project)
        found = find_sources(options.paths, ignored)
        for link in found.left_out:
            target = printable(os.path.realpath(link))
            text = f"is a link to a folder elsewhere, and is not followed; pass {target} too, if it is meant"
            print(f"{printable(str(link))}: warning: {text}", file=sys.stderr)
        self._state = read_manifests(options.state)
        self.problems = [*found.problems, *self._state.problems]
        self.sources = found.files
        if options.kustomize or options.helm:
            from webhook.cli.judging.rendering import rendered  # noqa: PLC0415 - for few

            self.sources += rendered(options, self.problems)
        self.skipped = found.skipped
        self._touched = self._changes("--changed-since", options.changed_since, ignored)
        self._against = self._changes("--against", options.against, ignored)

    def _changes(self, flag: str, ref: str | None, ignored: Ignored) -> Changes | None:
        if ref is None:
            return None
        from webhook.cli.judging.changes import Changes  # noqa: PLC0415 - for few

        paths = self._options.paths
        return Changes(flag, ref, folder=folder_of(self._options), paths=paths, ignored=ignored, read=self.read)

    def read(self, sources: Iterable[Source], found: Manifests) -> None:
        """Add the objects of the sources that are to be judged: policy files are not."""
        read_sources(sources, found)
        objects = [each for each in found.objects if each.group != API_VERSION.partition("/")[0]]
        found.skipped += len(found.objects) - len(objects)
        found.objects = objects

    def _pool_kinds(self) -> set[tuple[str, str]]:
        """Groups and kinds of node pools, and of what says their sizes."""
        return {(each.group, each.kind) for each in pool_resources(self.bundle.providers.values())}

    def read_all(self) -> Manifests:
        """Read all sources, where they are large in several processes."""
        # What is read stays: looking for garbage among it is a tenth of the time.
        gc.disable()
        try:
            chunks = in_processes(self._read_chunk, chunks_of(self.sources), "reading")
            if None in chunks:
                chunks = [self._read_chunk(self.sources)]
        finally:
            gc.freeze()
            gc.enable()
        found = Manifests()
        for chunk in filter(None, chunks):
            found.objects += chunk.objects
            found.problems += chunk.problems
            found.skipped += chunk.skipped
        return found

    def _read_chunk(self, sources: list[Source]) -> Manifests | None:
        """Read some sources. None: a part of a file is broken, and what is wrong must be told of the whole file."""
        found = Manifests()
        try:
            self.read(sources, found)
        except DocumentError:
            return None
        return found

    def _asked(self, found: Manifests) -> tuple[list[Manifest], list[str], list[Manifest]]:
        """The objects that the API server is asked for, what it is to do with each, and what is there before."""
        objects = found.objects
        there = {} if self._against is None else self._against.there(objects)
        given = {written_identity(each) for each in objects} if there else set()
        unread = tuple(problem.file for problem in (*self.problems, *found.problems))
        removed = [
            each
            for identity, each in there.items()
            if identity not in given and not any(f"{each.file}/".startswith(f"{file}/") for file in unread)
        ]
        if self._against is not None and removed:
            removed = self._against.gone(removed)
        operations = [
            self._options.operation or ("UPDATE" if there and written_identity(each) in there else "CREATE")
            for each in objects
        ]
        return [*objects, *removed], [*operations, *["DELETE"] * len(removed)], list(there.values())

    def _removes(self, operation: str) -> bool:
        """Is that done to an object because the files have it no longer?"""
        return self._against is not None and operation == "DELETE"

    def prepare(self, found: Manifests) -> Prepared:
        """Take in what has been read, and the cluster that it is for."""
        options, objects, state = self._options, found.objects, self._state.objects
        problems = [*self.problems, *found.problems]
        unread = bool(problems)
        kinds = Kinds(self.bundle, [*state, *objects])
        places = Places(objects, self._pool_kinds())
        things = [kinds.as_meant(each) for each in objects]
        objects, operations, there = self._asked(found)
        before = [*state, *there]
        if options.kubeconfig is None:
            # Of two descriptions of an object the later counts: what is applied, or, before it is deleted, what is
            # there.
            ordered = [*things, *state] if options.operation == "DELETE" else [*state, *things]
            complete = bool(options.state) or _shows_pools(there, self.bundle)
            view = view_of(ordered, self.bundle.providers, complete=complete)
        else:
            from webhook.cli.judging.live_state import applied, read_live  # noqa: PLC0415 - slow, and for few

            live = read_live(options.kubeconfig, options.context, objects, self.bundle, kinds, options.operation or "")
            problems += live.problems
            objects, operations, before = live.objects, live.operations, [*live.there, *before]
            view = applied(live.view, [*state, *objects], self.bundle.providers)
        view = _with_unknown_pools(view, partial=options.partial, unread=unread)
        context = replace(
            self._context,
            view=view,
            api_server=view.api_server or options.kubernetes_version,
            oldest_kubelet=view.oldest_kubelet or options.kubernetes_version,
        )
        user = UserInfo(options.user, tuple(options.group))
        judges = {
            operation: Judge(self.bundle.index, kinds, context, operation=operation, user=user, before=before)
            for operation in set(operations)
        }

        asked = [
            (each, operation)
            for each, operation in zip(objects, operations, strict=True)
            if self._touched is None or self._removes(operation) or self._touched.touches(each)
        ]
        return Prepared(
            bundle=self.bundle,
            view=view,
            objects=asked,
            judges=judges,
            places=places,
            removes=self._against is not None,
            problems=problems,
            skipped=self.skipped + found.skipped,
        )


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Objects, and all that it takes to judge them.

    Attributes:
        objects: each with what is done with it.
        judges: by that.
        places: where objects are more than once.
        removes: what is deleted is what the files have no longer.
        problems, skipped: of reading, as in `Judged`.
    """

    bundle: Bundle
    view: ClusterView
    objects: list[tuple[Manifest, str]]
    judges: Mapping[str, Judge]
    places: Places
    removes: bool
    problems: list[Problem]
    skipped: int

    @property
    def divisible(self) -> bool:
        """Whether the objects can be judged apart: deletions have an order."""
        return "DELETE" not in self.judges

    def judge(self, part: slice | None = None) -> Judged:
        """Judge the objects: all of them, with the problems of reading them, or a part, without."""
        problems = [] if part is not None else list(self.problems)
        judged = []
        for each, operation in self.objects if part is None else self.objects[part]:
            judgement = self.judges[operation].judge(each)
            if self.removes and operation == "DELETE":
                judgement = _removed(judgement)
            elif (found_twice := self.places.duplicate(each)) is not None:
                judgement = replace(judgement, findings=(*judgement.findings, found_twice))
            judged.append((each, judgement))
            if judgement.problem is not None:
                problems.append(judgement.problem)
        return Judged(self.bundle, judged, problems, self.skipped, self.view)


def _removed(judgement: Judgement) -> Judgement:
    """The same of an object that nobody sees in the files."""
    said = "The files have it no longer: merging deletes it."
    findings = tuple(replace(each, detail=f"{said}\n{each.detail}".rstrip()) for each in judgement.findings)
    return replace(judgement, findings=findings)


def _shows_pools(objects: Iterable[Manifest], bundle: Bundle) -> bool:
    return view_of(objects, bundle.providers, complete=False).pools is not None


def _contradiction(options: Namespace) -> str:
    """What is wrong with the flags, taken together."""
    if not (options.paths or options.kustomize or options.helm):
        return "the following arguments are required: PATH (a file or folder; - is standard input)"
    if options.helm_values and not options.helm:
        return "--helm-values is for charts; give --helm too"
    if options.context is not None and options.kubeconfig is None:
        return "--context is of a kubeconfig; give --kubeconfig too"
    if options.against is not None and options.kubeconfig is not None:
        return "--against and --kubeconfig both say what is there already; give one of them"
    return ""


def _with_unknown_pools(view: ClusterView, *, partial: bool, unread: bool) -> ClusterView:
    """The cluster, without its node pools where there may be others."""
    if partial:
        why = "--partial says that the cluster has more node pools than the files show."
        return replace(view, pools=None, why_unknown=why, remedy="pass all of them with --state, without --partial")
    if unread:
        why = "Some of the files can't be read, and there may be node pools in them."
        return replace(view, pools=None, why_unknown=why, remedy="mend those files first")
    return view
