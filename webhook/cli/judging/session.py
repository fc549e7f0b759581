"""A judging session of `check`, `fix`, `fn` and `explain`: which objects, against which cluster, for which user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.provider import pool_resources
from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging.duplicates import Places
from webhook.cli.judging.inputs import Inputs
from webhook.cli.judging.judge import Judge
from webhook.cli.judging.kinds import ResourceKinds
from webhook.cli.judging.parallel import in_processes
from webhook.cli.options import read_policies
from webhook.context import Context, Phase, utc_now
from webhook.kube import disruption
from webhook.manifests.objects import Unread, read_manifests
from webhook.manifests.pool_lists import list_problems
from webhook.manifests.state import view_of
from webhook.review import UserInfo

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from webhook.bundle import Bundle
    from webhook.cli.judging.judge import Judgement
    from webhook.cluster.protocol import ClusterView
    from webhook.manifests.objects import Manifest, Manifests
    from webhook.policy.errors import Problem

ObjectResult = TypeVar("ObjectResult")

_AT_ONCE: Final = 500
"""Objects that take as long to judge as it takes to start a process, several times over."""


class Judgements(msgspec.Struct, frozen=True):
    """Hold the judgements of a session.

    Attributes:
        objects: each object with its judgement, in the order of the files.
        problems: what could not be read or judged; everything else was.
        skipped: number of documents that are no objects, Helm templates, and policy files.
    """

    bundle: Bundle
    objects: list[tuple[Manifest, Judgement]]
    problems: list[Problem]
    skipped: int
    view: ClusterView


class Results(msgspec.Struct, Generic[ObjectResult], frozen=True):
    """Hold what `judge_each` made of the judgements.

    Attributes:
        objects: the result of each object, in the order of the files.
        problems, skipped: as in `Judgements`.
    """

    bundle: Bundle
    objects: list[ObjectResult]
    problems: list[Problem]
    skipped: int


def judge(options: Namespace, *, trace: bool = False) -> Judgements:
    """Read and judge everything that the flags name.

    Without ``operation`` among the options each object is applied. ``trace`` keeps how each judgement came about. Raise
    CannotJudgeError if the policies or the flags are wrong.
    """
    session = Session(options, trace=trace)
    return session.prepare(session.inputs.read()).judge()


def judge_each(
    options: Namespace, summarize: Callable[[Judgements], list[ObjectResult]], *, trace: bool = False
) -> Results[ObjectResult]:
    """Judge as `judge` does, in several processes where there are many objects.

    ``summarize`` makes the result of each object; only results leave a process. Raise CannotJudgeError if the policies
    or the flags are wrong, or a process was killed.
    """
    session = Session(options, trace=trace)
    prepared = session.prepare(session.inputs.read())
    count = len(prepared.objects)
    step = _AT_ONCE if prepared.divisible else max(count, 1)

    def judge_some(part: slice) -> tuple[list[ObjectResult], list[Problem]]:
        judged = prepared.judge(part)
        return summarize(judged), judged.problems

    parts = in_processes(judge_some, [slice(begin, begin + step) for begin in range(0, count, step)], "judging")
    return Results(
        session.bundle,
        [each for results, _ in parts for each in results],
        [*prepared.problems, *(problem for _, problems in parts for problem in problems)],
        prepared.skipped,
    )


class Session:
    """Hold the flags of a command, with the policies, the state and the places of the inputs that they name.

    Raise CannotJudgeError if the policies or the flags are wrong.
    """

    def __init__(self, options: Namespace, *, trace: bool = False) -> None:
        if problem := _contradiction(options):
            raise CannotJudgeError(f"error: {problem}")
        self._options = options
        self._context = Context(phase=Phase.VALIDATE, now=utc_now(), api_server=options.kubernetes_version, trace=trace)
        self._user = UserInfo(options.user, tuple(options.group))
        self.bundle = read_policies(options.policies, cluster=options.cluster)
        self.inputs = Inputs(options, self.bundle.providers.values())
        self._state = read_manifests(options.state)

    def prepare(self, found: Manifests) -> Prepared:
        """Return the objects that were read, with what it takes to judge them."""
        options, state = self._options, self._state.objects
        problems = [*self.inputs.problems, *self._state.problems, *found.problems]
        unread = [*(Unread(each.file) for each in self.inputs.problems), *found.unread, *self._state.unread]
        problems += list_problems([*state, *found.objects], self.bundle.providers.values())
        kinds = ResourceKinds(self.bundle, [*state, *found.objects])
        pool_kinds = {(each.group, each.kind) for each in pool_resources(self.bundle.providers.values())}
        requests = self.inputs.requests(found)
        objects, operations, before = requests.objects, requests.operations, [*state, *requests.stored]
        if options.kubeconfig is None:
            view = self._view([kinds.as_meant(each) for each in found.objects], requests.stored)
        else:
            from webhook.cli.judging.live_state import applied, read_live  # noqa: PLC0415 - slow, and for few

            live = read_live(options.kubeconfig, options.context, objects, self.bundle, kinds, options.operation or "")
            problems += live.problems
            objects, operations, before = live.objects, live.operations, [*live.stored, *before]
            view = applied(live.view, [*state, *objects], self.bundle.providers)
        if any(each.may_hold({disruption.KIND}) for each in unread):
            view = replace(view, budgets=None)
        showing = {kind for _, kind in pool_kinds}
        if not view.pools:  # Nodes stand for pools where none is declared.
            showing.add("Node")
        unread = [each for each in unread if each.may_hold(showing)]
        view = _with_unknown_pools(view, partial=options.partial, unread=unread)
        context = self._context.seeing(view, options.kubernetes_version)
        judges = {
            operation: Judge(self.bundle.index, kinds, context, operation=operation, user=self._user, before=before)
            for operation in set(operations)
        }
        judged = [
            (each, operation)
            for each, operation in zip(objects, operations, strict=True)
            if self.inputs.is_judged(each, operation)
        ]
        return Prepared(
            bundle=self.bundle,
            view=view,
            objects=judged,
            judges=judges,
            places=Places(found.objects, (each for each, _ in judged), pool_kinds),
            inputs=self.inputs,
            problems=problems,
            skipped=self.inputs.skipped + found.skipped,
        )

    def _view(self, objects: list[Manifest], stored: list[Manifest]) -> ClusterView:
        """Return the cluster as the files show it. The later of two descriptions of an object counts.

        That is what is applied, or, before it is deleted, what is stored.
        """
        state, deletes = self._state.objects, self._options.operation == "DELETE"
        complete = bool(self._options.state) or _shows_pools(stored, self.bundle)
        ordered = [*objects, *state] if deletes else [*state, *objects]
        return view_of(ordered, self.bundle.providers, complete=complete)


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Hold objects, and what it takes to judge them.

    Attributes:
        objects: each object with its operation.
        places: where node pools are in the files.
        problems, skipped: of reading, as in `Judgements`.
    """

    bundle: Bundle
    view: ClusterView
    objects: list[tuple[Manifest, str]]
    judges: Mapping[str, Judge]
    places: Places
    inputs: Inputs
    problems: list[Problem]
    skipped: int

    @property
    def divisible(self) -> bool:
        """Return whether the objects can be judged apart: the order of deletions counts."""
        return "DELETE" not in self.judges

    def judge(self, part: slice | None = None) -> Judgements:
        """Judge all objects, with the problems of reading them, or a part of them, without."""
        problems = [] if part is not None else list(self.problems)
        judged = []
        for each, operation in self.objects if part is None else self.objects[part]:
            judgement = self.judges[operation].judge(each)
            if self.inputs.is_removed(operation):
                judgement = _removed(judgement)
            elif (duplicate := self.places.duplicate(each)) is not None:
                judgement = replace(judgement, findings=(*judgement.findings, duplicate))
            judged.append((each, judgement))
            if judgement.problem is not None:
                problems.append(judgement.problem)
        return Judgements(self.bundle, judged, problems, self.skipped, self.view)


def _removed(judgement: Judgement) -> Judgement:
    """Return the judgement with a note that the object is no longer in the files."""
    note = "The files have it no longer: merging deletes it."
    findings = tuple(replace(each, detail=f"{note}\n{each.detail}".rstrip()) for each in judgement.findings)
    return replace(judgement, findings=findings)


def _shows_pools(objects: Iterable[Manifest], bundle: Bundle) -> bool:
    return view_of(objects, bundle.providers, complete=False).pools is not None


def _contradiction(options: Namespace) -> str:
    """Return what is wrong with the flags taken together; empty if nothing is."""
    if not (options.paths or options.kustomize or options.helm):
        return "the following arguments are required: PATH (a file or folder; - is standard input)"
    if options.helm_values and not options.helm:
        return "--helm-values is for charts; give --helm too"
    if options.context is not None and options.kubeconfig is None:
        return "--context is of a kubeconfig; give --kubeconfig too"
    if options.against is not None and options.kubeconfig is not None:
        return "--against and --kubeconfig both say what is there already; give one of them"
    return ""


def _with_unknown_pools(view: ClusterView, *, partial: bool, unread: Sequence[Unread]) -> ClusterView:
    """Return the cluster with unknown node pools if there may be others than those that were read."""
    if partial:
        why = "--partial says that the cluster has more node pools than the files show."
        return replace(view, pools=None, why_unknown=why, remedy="pass all of them with --state, without --partial")
    if unread:
        more = f" and {len(unread) - 1} more files" if len(unread) > 1 else ""
        why = f"{unread[0].file}{more} can't be read, and there may be node pools there."
        remedy = "mend what can't be read, or leave it out (--ignore), if it describes no node pools"
        return replace(view, pools=None, why_unknown=why, remedy=remedy)
    return view
