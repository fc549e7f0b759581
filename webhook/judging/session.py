"""Evaluate objects for `check`, `fix`, `fn`, and `explain`: choose the objects, the cluster, and the user."""

from __future__ import annotations

import gc
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.base.exits import CannotJudgeError
from webhook.base.terminal import counted
from webhook.capacity.providers.provider import pool_resources
from webhook.documents import DOCUMENT_LIMITS
from webhook.inputs.kustomizations import Rendered
from webhook.inputs.manifests import Inputs, place_of, together
from webhook.inputs.objects import Identity, Manifest, Manifests, Unread, read_manifests, written_identity
from webhook.inputs.policies import read_policies, warn_of_spot_labels
from webhook.inputs.state import list_problems, telling_kinds, view_of
from webhook.judging.duplicates import duplicated
from webhook.judging.judge import Judge, Judgement
from webhook.judging.kinds import ResourceKinds
from webhook.judging.parallel import in_processes, shares_of
from webhook.kube import disruption
from webhook.kube.resources import CRD_KIND
from webhook.model.review import UserInfo
from webhook.policy.errors import Problem, escaped_name
from webhook.rules.context import Context, Phase, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.inputs.files import ManifestFile
    from webhook.inputs.options import JudgingOptions
    from webhook.judging.live_state import Live
    from webhook.model.decision import Finding

T = TypeVar("T")


class Judged(msgspec.Struct, Generic[T], frozen=True):
    """The results of a session.

    Attributes:
        objects: the result of each object, in the order of the files.
        problems: the inputs that can't be read or evaluated. All other inputs are evaluated.
        skipped: the number of documents that aren't objects, Helm templates, and policy files.
        not_rendered: the kustomizations and charts that stay unrendered on purpose.
    """

    bundle: Bundle
    objects: list[T]
    problems: list[Problem]
    skipped: int
    view: ClusterView
    not_rendered: Sequence[Problem] = ()


Judgements: TypeAlias = "Judged[tuple[Manifest, Judgement]]"


@contextmanager
def _keeping_everything() -> Iterator[None]:
    """Disable garbage collection: manifests and results stay alive, and scanning them takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@_keeping_everything()
def judge(options: JudgingOptions, *, trace: bool = False) -> Judgements:
    """Read and evaluate all inputs of the flags.

    Without ``operation``, apply each object. ``trace`` records the steps of each evaluation. Raise CannotJudgeError if
    the policies or the flags are invalid.
    """
    session = Session(options, trace=trace)
    return session.completed(session.judge(session.inputs.read(session.inputs.sources)))


@_keeping_everything()
def judge_each(
    options: JudgingOptions, summarize: Callable[[Judgements], list[T]], *, trace: bool = False
) -> Judged[T]:
    """Evaluate like `judge`, in several processes if there are many files.

    ``summarize`` computes the result of each object; processes return only results. Raise CannotJudgeError if the
    policies or the flags are invalid, or a process dies.
    """
    session = Session(options, trace=trace)
    # The order of deletions matters, and a live cluster is read once.
    if options.kubeconfig is None and options.operation != "DELETE":
        for split in (True, False):
            shares = shares_of(session.inputs.sources, split=split)
            with suppress(_UnreadablePartError):
                if len(shares) > 1:
                    return session.completed(session.judge_shares(shares, summarize))
    judged = session.judge(session.inputs.read(session.inputs.sources))
    return session.completed(Judged(judged.bundle, summarize(judged), judged.problems, judged.skipped, judged.view))


class _UnreadablePartError(Exception):
    """A part of a file can't be read: read the file as a whole, for the position and for what it may contain."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for evaluating each object that depend on all objects.

    Attributes:
        definitions: the CustomResourceDefinitions among the objects.
        notes: the findings about several objects, by the first object and its place.
        removals: the objects that are no longer in the files, each with its operation.
        live: the live cluster, if it was read.
        problems, skipped: as in `Judged`, from reading.
    """

    context: Context
    definitions: list[Manifest]
    notes: dict[tuple[Identity, str], Finding]
    removals: list[tuple[Manifest, str]]
    live: Live | None
    problems: list[Problem]
    skipped: int


class Session:
    """The flags of a command, with their policies, state, and inputs.

    Raise CannotJudgeError if the policies or the flags are invalid.
    """

    def __init__(self, options: JudgingOptions, *, trace: bool = False) -> None:
        if problem := _contradiction(options):
            raise CannotJudgeError(f"error: {problem}")
        self._options = options
        self._context = Context(phase=Phase.VALIDATE, now=utc_now(), api_server=options.kubernetes_version, trace=trace)
        self._user = UserInfo(options.user, tuple(options.group))
        self.bundle = read_policies(options.policies, cluster=options.cluster)
        self.inputs = Inputs(options, self.bundle.providers.values())
        self._state = read_manifests(options.state)
        self._telling = telling_kinds(self.bundle.providers.values())

    def completed(self, judged: Judged[T]) -> Judged[T]:
        """Add a problem if there is nothing to evaluate, unless only a branch's changes are evaluated."""
        problems = list(judged.problems)
        compared = self._options.changed_since is not None and self.inputs.sources
        if not (judged.objects or problems or compared):
            paths = [*self._options.paths, *self._options.kustomize, *self._options.helm]
            skipped = f"{counted(judged.skipped, 'file or document')} skipped" if judged.skipped else "no manifests"
            text = (
                f"nothing was evaluated: there are no Kubernetes objects here ({skipped}); pass the manifests you apply"
            )
            problems.append(Problem(escaped_name(paths[0]), 0, 0, "", text))
        return replace(judged, problems=problems, not_rendered=self.inputs.not_rendered)

    def judge_shares(
        self, shares: Sequence[list[ManifestFile]], summarize: Callable[[Judgements], list[T]]
    ) -> Judged[T]:
        """Evaluate each share of the sources in a separate process. Raise CannotJudgeError if one dies.

        Raise _UnreadablePartError if a file that was split isn't correct.
        """
        split = {
            escaped_name(source.file) for share in shares for source in share if source.limits is not DOCUMENT_LIMITS
        }

        def read_and_judge(share: list[ManifestFile]) -> Generator[Any, Case, None]:
            manifests = self.inputs.read(share)
            case = yield self.summary(manifests)
            judged = self.judge_requests(self.inputs.requests(manifests.objects), case)
            yield summarize(judged), judged.problems

        def prepare(read: list[Manifests]) -> Case:
            manifests = together(read)
            if any(problem.file in split for problem in manifests.problems):
                raise _UnreadablePartError
            return self.prepare(manifests)

        case, parts = in_processes(read_and_judge, shares, prepare)
        removed = self.judge_requests(case.removals, case)
        parts.append((summarize(removed), removed.problems))
        return Judged(
            self.bundle,
            [result for results, _ in parts for result in results],
            [*case.problems, *(problem for _, problems in parts for problem in problems)],
            case.skipped,
            case.context.view,
        )

    def summary(self, manifests: Manifests) -> Manifests:
        """Return the manifests without the objects that don't affect others.

        With ``--against``, keep their names: an object that no file contains is deleted.
        """
        return replace(
            manifests,
            objects=[
                manifest if manifest.kind in self._telling else manifest.named
                for manifest in manifests.objects
                if manifest.kind in self._telling or self._options.against is not None
            ],
        )

    def judge(self, manifests: Manifests) -> Judgements:
        """Evaluate all manifests."""
        case = self.prepare(manifests)
        requests = self.inputs.requests(manifests.objects) if case.live is None else case.live.requests
        judged = self.judge_requests([*requests, *case.removals], case)
        return replace(judged, problems=[*case.problems, *judged.problems])

    def prepare(self, manifests: Manifests) -> Case:
        """Return the facts for evaluating each object, from all manifests or their summaries."""
        options, state = self._options, self._state.objects
        problems = [*self.inputs.problems, *self._state.problems, *manifests.problems]
        unread = [*(Unread(problem.file) for problem in self.inputs.problems), *manifests.unread, *self._state.unread]
        problems += list_problems([*state, *manifests.objects], self.bundle.providers.values())
        kinds = ResourceKinds(self.bundle, [*state, *manifests.objects])
        live = None
        if options.kubeconfig is None:
            view = self._view([kinds.as_meant(manifest) for manifest in manifests.objects])
        else:
            from webhook.judging.live_state import applied, read_live

            live = read_live(options, manifests.objects, self.bundle, kinds)
            problems += live.problems
            view = applied(live.view, [*state, *(manifest for manifest, _ in live.requests)], self.bundle.providers)
        if any(missing.may_hold({disruption.KIND}) for missing in unread):
            view = replace(view, budgets=None)
        pool_kinds = {(resource.group, resource.kind) for resource in pool_resources(self.bundle.providers.values())}
        showing = {kind for _, kind in pool_kinds}
        if not view.pools:  # Nodes replace pools if none is declared.
            showing.add("Node")
        unread = [missing for missing in unread if missing.may_hold(showing)]
        view = _with_unknown_pools(view, partial=options.partial, unread=unread)
        warn_of_spot_labels(self.bundle, view)
        pools = [pool for pool in manifests.objects if (pool.group, pool.kind) in pool_kinds and pool.name]
        notes = [
            *duplicated(pools, filter(self.inputs.is_judged, pools)),
            *kinds.unread_pools(filter(self.inputs.is_judged, manifests.objects)),
        ]
        return Case(
            context=self._context.seeing(view, options.kubernetes_version),
            definitions=[manifest for manifest in manifests.objects if manifest.kind == CRD_KIND],
            notes={(written_identity(first), place_of(first)): finding for first, finding in notes},
            removals=self.inputs.removals(manifests),
            live=live,
            problems=problems,
            skipped=self.inputs.skipped + manifests.skipped,
        )

    def judge_requests(self, requests: Iterable[tuple[Manifest, str]], case: Case) -> Judgements:
        """Evaluate objects with their operations. The problems exclude those from reading."""
        state = self._state.objects
        before = [*state, *self.inputs.stored] if case.live is None else [*case.live.stored, *state]
        kinds = ResourceKinds(self.bundle, [*state, *case.definitions])
        judges: dict[str, Judge] = {}
        judged = []
        for manifest, operation in requests:
            if not self.inputs.is_judged(manifest, operation):
                continue
            if operation not in judges:
                judges[operation] = Judge(
                    self.bundle.index, kinds, case.context, operation=operation, user=self._user, before=before
                )
            judgement = judges[operation].judge(manifest, is_stored=self.inputs.is_stored(manifest))
            if self.inputs.is_removed(operation):
                judgement = _noted(judgement, "The files no longer contain it: merging deletes it.")
            elif isinstance(manifest.document, Rendered):
                judgement = _noted(judgement, f"In the output of `{manifest.document.command}`.")
            if case.notes and (note := case.notes.get((written_identity(manifest), place_of(manifest)))):
                judgement = replace(judgement, findings=(*judgement.findings, note))
            judged.append((manifest, judgement))
        problems = [judgement.problem for _, judgement in judged if judgement.problem is not None]
        return Judged(self.bundle, judged, problems, case.skipped, case.context.view)

    def _view(self, objects: list[Manifest]) -> ClusterView:
        """Return the cluster that the files describe. If an object is described twice, the later description counts.

        This is the applied object, or for DELETE, the stored one.
        """
        state, deletes = self._state.objects, self._options.operation == "DELETE"
        stored = [*self.inputs.stored, *filter(self.inputs.is_stored, objects)]
        complete = bool(self._options.state) or view_of(stored, self.bundle.providers, complete=False).pools is not None
        ordered = [*objects, *state] if deletes else [*state, *objects]
        return view_of(ordered, self.bundle.providers, complete=complete)


def _noted(judgement: Judgement, note: str) -> Judgement:
    """Add a note to each finding of the judgement."""
    findings = tuple(replace(finding, detail=f"{note}\n{finding.detail}".rstrip()) for finding in judgement.findings)
    return replace(judgement, findings=findings)


def _contradiction(options: JudgingOptions) -> str:
    """Return why the flags contradict each other; empty if they don't."""
    if not (options.paths or options.kustomize or options.helm):
        return "the following arguments are required: PATH (a file or folder; - is standard input)"
    if options.helm_values and not options.helm:
        return "--helm-values requires --helm"
    if pipe := next((file for file in options.helm_values if Path(file).exists() and not Path(file).is_file()), ""):
        return f"--helm-values: {pipe} isn't a regular file, and helm can't read it; save its contents to a file"
    if options.context is not None and options.kubeconfig is None:
        return "--context requires --kubeconfig"
    if options.against is not None and options.kubeconfig is not None:
        return "--against and --kubeconfig exclude each other; use one of them"
    return ""


def _with_unknown_pools(view: ClusterView, *, partial: bool, unread: Sequence[Unread]) -> ClusterView:
    """Mark the cluster's node pools as unknown if the files may lack some."""
    if partial:
        why = "--partial says that the cluster has more node pools than the files show."
        return replace(view, pools=None, why_unknown=why, remedy="pass all node pools with --state, and omit --partial")
    if unread:
        more = f" and {len(unread) - 1} more files" if len(unread) > 1 else ""
        why = f"{unread[0].file}{more} can't be read, and there may be node pools there."
        remedy = "correct the file, or skip it with --ignore if it describes no node pools"
        return replace(view, pools=None, why_unknown=why, remedy=remedy)
    return view
