"""What ``check``, ``fix`` and ``explain`` have in common: which manifests, against which cluster, asked for by whom."""

from __future__ import annotations

import gc
import sys
from argparse import ArgumentTypeError
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.provider import readers_by_resource, sizers_by_resource
from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging import Judge
from webhook.cli.kinds import Kinds
from webhook.cli.options import add_kubernetes_version, add_policies, read_policies
from webhook.cluster.files import view_of
from webhook.cluster.manifests import Manifests, read_manifests, read_sources
from webhook.cluster.sources import find_sources
from webhook.context import Context, Phase, utc_now
from webhook.documents import Document
from webhook.globs import Globs, problem_with
from webhook.kube import disruption
from webhook.kube.resources import CRD_GROUP, CRD_KIND
from webhook.policy.common import API_VERSION, PolicySpec
from webhook.review import UserInfo

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable
    from datetime import date

    from webhook.bundle import Bundle
    from webhook.cli.judging import Judgement
    from webhook.cluster.manifests import Manifest
    from webhook.cluster.protocol import ClusterView
    from webhook.cluster.sources import Source
    from webhook.policy.errors import Problem

_STATE_KINDS: Final = (("", "Namespace"), ("", "Node"), (disruption.GROUP, disruption.KIND))
"""Kinds that `view_of` looks at beside node pools."""

_WARN_BEFORE: Final = timedelta(days=14)
"""How long before its last day an exemption is called to mind."""


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


def add_operation(parser: ArgumentParser) -> None:
    """Declare ``--operation``, for commands that can judge more than a CREATE."""
    parser.add_argument(
        "--operation",
        choices=("CREATE", "UPDATE", "DELETE"),
        help="default: CREATE; with --kubeconfig what applying the object is: UPDATE where it is there already",
    )


def add_inputs(parser: ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files, folders; - is standard input")
    parser.add_argument(
        "--ignore",
        metavar="GLOB",
        type=_glob,
        action="append",
        default=[],
        help="leave out files and folders with this name or path; can be given again",
    )
    add_policies(parser)
    add_kubernetes_version(parser)
    cluster = parser.add_argument_group("the cluster that the objects are meant for")
    cluster.add_argument(
        "--state",
        metavar="PATH",
        action="append",
        default=[],
        help="manifests of what it has: node pools, Namespaces, Nodes, PodDisruptionBudgets; files or folders; can be "
        "given again",
    )
    cluster.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="read it from the cluster that this file names: node pools, Namespaces, Nodes, and the objects, "
        "as they are there; nothing is written to it",
    )
    cluster.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    cluster.add_argument("--partial", action="store_true", help="there are more node pools than the files show")
    request = parser.add_argument_group("the request that the webhook would see")
    request.add_argument("--user", default="", help="user name; default: unknown, and no exemption by user holds")
    request.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="group of the user; can be given again"
    )


def judge(options: Namespace, *, trace: bool = False) -> Judged:
    """Read and judge everything that the flags name.

    Args:
        options: of `add_inputs`, and ``operation``: what is done with each object; None: what applying it would be.
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
        skipped: files that are Helm templates.
    """

    def __init__(self, options: Namespace, *, trace: bool = False) -> None:
        if options.context is not None and options.kubeconfig is None:
            raise CannotJudgeError("error: --context is of a kubeconfig; give --kubeconfig too")
        self._options = options
        self._context = Context(phase=Phase.VALIDATE, now=utc_now(), api_server=options.kubernetes_version, trace=trace)
        self.bundle = read_policies(options.policies)
        for warning in _expiring(self.bundle, self._context.now.date()):
            print(warning, file=sys.stderr)
        found = find_sources(options.paths, Globs(options.ignore))
        self.sources = found.files
        self._state = read_manifests(options.state)
        self.problems = [*found.problems, *self._state.problems]
        self.skipped = found.skipped

    def is_divisible(self) -> bool:
        """Whether several processes can share the work: a cluster is asked once, and deletions have an order."""
        return self._options.kubeconfig is None and self._options.operation != "DELETE"

    def read(self, sources: Iterable[Source], found: Manifests) -> None:
        """Add the objects of the sources that are to be judged: policy files are not."""
        read_sources(sources, found)
        objects = [each for each in found.objects if each.group != API_VERSION.partition("/")[0]]
        found.skipped += len(found.objects) - len(objects)
        found.objects = objects

    def facts(self, objects: Iterable[Manifest]) -> list[Manifest]:
        """Those of the objects that `Kinds` and `view_of` look at, without their text."""
        providers = self.bundle.providers.values()
        kinds = {
            *_STATE_KINDS,
            (CRD_GROUP, CRD_KIND),
            *((each.any.group, each.any.kind) for each in readers_by_resource(providers).values()),
            *((each[0].group, each[0].kind) for each in sizers_by_resource(providers).values()),
        }
        return [
            replace(each, document=Document(each.file, each.document.line, None))
            for each in objects
            if (each.group, each.kind) in kinds
        ]

    def judge_alone(self) -> Judged:
        """Read and judge everything in this process."""
        found = Manifests()
        # What is read stays: looking for garbage among it is a tenth of the time.
        gc.disable()
        try:
            self.read(self.sources, found)
        finally:
            gc.freeze()
            gc.enable()
        judged = self.judge(found, found.objects, unread=bool(found.problems))
        return replace(judged, problems=[*self.problems, *judged.problems], skipped=self.skipped + judged.skipped)

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
        before = state
        if options.kubeconfig is None:
            operations = [options.operation or "CREATE"] * len(objects)
            # Of two descriptions of an object the later counts: what is applied, or, before it is deleted, what is
            # there.
            ordered = [*things, *state] if options.operation == "DELETE" else [*state, *things]
            view = view_of(ordered, self.bundle.providers, complete=bool(options.state))
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

        judged = []
        for each, operation in zip(objects, operations, strict=True):
            judgement = judges[operation].judge(each)
            judged.append((each, judgement))
            if judgement.problem is not None:
                problems.append(judgement.problem)
        return Judged(self.bundle, judged, problems, found.skipped, view)


def _with_unknown_pools(view: ClusterView, *, partial: bool, unread: bool) -> ClusterView:
    """The cluster, without its node pools where there may be others."""
    if partial:
        why = "--partial says that the cluster has more node pools than the files show."
        return replace(view, pools=None, why_unknown=why, remedy="pass all of them with --state, without --partial")
    if unread:
        why = "Some of the files can't be read, and there may be node pools in them."
        return replace(view, pools=None, why_unknown=why, remedy="mend those files first")
    return view


def _expiring(bundle: Bundle, today: date) -> Iterable[Problem]:
    """Exemptions that soon will hold no longer."""
    for policy in bundle.documents:
        for number, exemption in enumerate(policy.spec.exempt if isinstance(policy.spec, PolicySpec) else ()):
            if exemption.expires is not None and today <= exemption.expires <= today + _WARN_BEFORE:
                text = (
                    f"warning: the exemption ends on {exemption.expires} ({exemption.reason}); "
                    "renew it, or mend what it lets through"
                )
                yield policy.problem(("spec", "exempt", number, "expires"), text)


def _glob(text: str) -> str:
    if problem := problem_with(text):
        raise ArgumentTypeError(problem)
    return text.rstrip("/")
