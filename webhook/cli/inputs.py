"""What ``check``, ``fix`` and ``explain`` have in common: which manifests, against which cluster, asked for by whom."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.provider import pool_resources
from webhook.cli.duplicates import Places
from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging import Judge, written_identity
from webhook.cli.kinds import Kinds
from webhook.cli.options import read_policies
from webhook.cli.progress import Progress
from webhook.cli.project import folder_of
from webhook.cluster.files import view_of
from webhook.cluster.manifests import Manifests, read_manifests, read_sources
from webhook.cluster.sources import Ignored, find_sources
from webhook.context import Context, Phase, utc_now
from webhook.documents import Document
from webhook.globs import Globs
from webhook.kube import disruption
from webhook.kube.resources import CRD_GROUP, CRD_KIND
from webhook.policy.errors import printable
from webhook.policy.terms import API_VERSION
from webhook.review import UserInfo

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from webhook.bundle import Bundle
    from webhook.cli.changes import Changes
    from webhook.cli.judging import Judgement
    from webhook.cluster.manifests import Manifest
    from webhook.cluster.protocol import ClusterView
    from webhook.cluster.sources import Source
    from webhook.policy.errors import Problem

_STATE_KINDS: Final = (("", "Namespace"), ("", "Node"), (disruption.GROUP, disruption.KIND))
"""Kinds that `view_of` looks at beside node pools."""


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
    return Court(options, trace=trace).judge_alone()


class Court:
    """The flags, and what is the same for all objects.

    Attributes:
        sources: where the objects are.
        problems: what can't be read of the folders and of the cluster's state.
        progress: of reading and judging; whoever has the court closes it.
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
            from webhook.cli.rendering import rendered  # noqa: PLC0415 - for few

            self.sources += rendered(options, self.problems)
        self.skipped = found.skipped
        self.progress = Progress()
        self._touched = self._changes("--changed-since", options.changed_since, ignored)
        self._against = self._changes("--against", options.against, ignored)

    def _changes(self, flag: str, ref: str | None, ignored: Ignored) -> Changes | None:
        if ref is None:
            return None
        from webhook.cli.changes import Changes  # noqa: PLC0415 - for few

        paths = self._options.paths
        return Changes(flag, ref, folder=folder_of(self._options), paths=paths, ignored=ignored, read=self.read)

    def is_divisible(self) -> bool:
        """Whether several processes can share the work: a cluster is asked once, and deletions have an order."""
        return self._options.kubeconfig is None and self._options.operation != "DELETE" and self._against is None

    def read(self, sources: Iterable[Source], found: Manifests) -> None:
        """Add the objects of the sources that are to be judged: policy files are not."""
        read_sources(self.progress.reading(sources), found)
        objects = [each for each in found.objects if each.group != API_VERSION.partition("/")[0]]
        found.skipped += len(found.objects) - len(objects)
        found.objects = objects

    def facts(self, objects: Iterable[Manifest]) -> list[Manifest]:
        """Those of the objects that `Kinds` and `view_of` look at, without their text."""
        kinds = {*_STATE_KINDS, (CRD_GROUP, CRD_KIND), *self._pool_kinds()}
        # A node pool of another apiVersion may be meant for one that is read.
        pools = {kind for _, kind in self._pool_kinds()}
        return [
            replace(each, document=Document(each.file, each.line, None), path=())
            for each in objects
            if (each.group, each.kind) in kinds or each.kind in pools
        ]

    def _pool_kinds(self) -> set[tuple[str, str]]:
        """Groups and kinds of node pools, and of what says their sizes."""
        return {(each.group, each.kind) for each in pool_resources(self.bundle.providers.values())}

    def judge_alone(self) -> Judged:
        """Read and judge everything in this process."""
        found = Manifests()
        with closing(self.progress):
            self.progress.start(len(self.sources))
            # What is read stays: looking for garbage among it is a tenth of the time.
            gc.disable()
            try:
                self.read(self.sources, found)
            finally:
                gc.freeze()
                gc.enable()
            judged = self.judge(found, found.objects, unread=bool(found.problems))
        return replace(judged, problems=[*self.problems, *judged.problems], skipped=self.skipped + judged.skipped)

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

    def judge(self, found: Manifests, things: list[Manifest], *, unread: bool) -> Judged:
        """Judge objects.

        Args:
            found: the objects.
            things: among the objects of the whole input, those that describe the cluster.
            unread: some of the input can't be read.
        """
        options, objects, state = self._options, found.objects, self._state.objects
        problems = list(found.problems)
        kinds = Kinds(self.bundle, [*state, *things])
        places = Places(things, self._pool_kinds())
        things = [kinds.as_meant(each) for each in things]
        objects, operations, there = self._asked(found)
        before = [*state, *there]
        if options.kubeconfig is None:
            # Of two descriptions of an object the later counts: what is applied, or, before it is deleted, what is
            # there.
            ordered = [*things, *state] if options.operation == "DELETE" else [*state, *things]
            complete = bool(options.state) or _shows_pools(there, self.bundle)
            view = view_of(ordered, self.bundle.providers, complete=complete)
        else:
            from webhook.cli.live_state import applied, read_live  # noqa: PLC0415 - slow, and for few

            live = read_live(options.kubeconfig, options.context, objects, self.bundle, kinds, options.operation or "")
            problems += live.problems
            objects, operations, before = live.objects, live.operations, [*live.there, *before]
            view = applied(live.view, [*state, *objects], self.bundle.providers)
        view = _with_unknown_pools(view, partial=options.partial, unread=unread or bool(self.problems))
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
        judged = []
        for each, operation in self.progress.judging(asked):
            judgement = judges[operation].judge(each)
            if self._removes(operation):
                judgement = _removed(judgement)
            elif (found_twice := places.duplicate(each)) is not None:
                judgement = replace(judgement, findings=(*judgement.findings, found_twice))
            judged.append((each, judgement))
            if judgement.problem is not None:
                problems.append(judgement.problem)
        return Judged(self.bundle, judged, problems, found.skipped, view)


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
