"""What ``check``, ``fix`` and ``explain`` have in common: which manifests, against which cluster, asked for by whom."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging import Judge
from webhook.cli.kinds import Kinds
from webhook.cli.options import add_kubernetes_version, add_policies, read_policies
from webhook.cluster.files import view_of
from webhook.cluster.manifests import read_manifests
from webhook.context import Context, Phase, utc_now
from webhook.globs import Globs, problem_with
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
    from webhook.policy.errors import Problem

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
    if options.context is not None and options.kubeconfig is None:
        raise CannotJudgeError("error: --context is of a kubeconfig; give --kubeconfig too")
    context = Context(phase=Phase.VALIDATE, now=utc_now(), api_server=options.kubernetes_version, trace=trace)
    bundle = read_policies(options.policies)
    for warning in _expiring(bundle, context.now.date()):
        print(warning, file=sys.stderr)

    given = read_manifests(options.paths, ignore=Globs(options.ignore))
    state = read_manifests(options.state)
    problems = [*given.problems, *state.problems]
    objects = [each for each in given.objects if each.group != API_VERSION.partition("/")[0]]
    kinds = Kinds(bundle, [*state.objects, *objects])
    unread = bool(problems)
    before = state.objects
    if options.kubeconfig is None:
        operations = [options.operation or "CREATE"] * len(objects)
        # Of two descriptions of an object the later counts: what is applied, or, before it is deleted, what is there.
        things = [*objects, *state.objects] if options.operation == "DELETE" else [*state.objects, *objects]
        view = view_of(things, bundle.providers, complete=bool(options.state))
    else:
        from webhook.cli.live_state import applied, read_live  # noqa: PLC0415 - slow, and for few

        live = read_live(options.kubeconfig, options.context, objects, bundle, kinds, options.operation or "")
        problems += live.problems
        objects, operations, before = live.objects, live.operations, [*live.there, *before]
        view = applied(live.view, [*state.objects, *objects], bundle.providers)
    view = _with_unknown_pools(view, partial=options.partial, unread=unread)
    context = replace(
        context,
        view=view,
        api_server=view.api_server or options.kubernetes_version,
        oldest_kubelet=view.oldest_kubelet or options.kubernetes_version,
    )
    user = UserInfo(options.user, tuple(options.group))
    judges = {
        operation: Judge(bundle.index, kinds, context, operation=operation, user=user, before=before)
        for operation in set(operations)
    }

    judged = []
    for each, operation in zip(objects, operations, strict=True):
        judgement = judges[operation].judge(each)
        judged.append((each, judgement))
        if judgement.problem is not None:
            problems.append(judgement.problem)
    return Judged(bundle, judged, problems, given.skipped + len(given.objects) - len(objects), view)


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
