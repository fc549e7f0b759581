"""``spotgate check``: manifests, judged before they reach a cluster."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND
from webhook.cli.judging import Judge, path_of
from webhook.cli.kinds import Kinds
from webhook.cli.options import add_kubernetes_version, add_policies, read_policies
from webhook.cli.report import Patch, Report, Result
from webhook.cluster.files import view_of
from webhook.cluster.manifests import read_manifests
from webhook.context import Context, Phase, utc_now
from webhook.decision import Outcome
from webhook.globs import Globs, problem_with
from webhook.policy.common import API_VERSION, PolicySpec
from webhook.review import UserInfo

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator
    from datetime import date

    from webhook.bundle import Bundle
    from webhook.cli.judging import Judgement
    from webhook.cluster.manifests import Manifest
    from webhook.cluster.protocol import ClusterView
    from webhook.policy.errors import Problem

DESCRIPTION: Final = """\
Judge manifests as the webhook would judge them, before they reach a cluster.

Every object in the files is defaulted, changed and judged as the API server would have it done,
and so are the pod templates inside workloads. The objects are also state for each other: a spot
pool and its on-demand fallback may arrive together. What the webhook would inject is shown;
nothing is written.
"""

EPILOG: Final = """\
what is unknown:
  Some things can't be known without a cluster. A policy that needs them says `indeterminate`,
  and what to pass. Node pools are taken for complete where any is among the files or --state is
  given, unless --partial is; otherwise they are unknown. With --operation UPDATE an object is
  compared with the same object in --state; one that is not there is judged as if it were new.

what is skipped:
  In a folder: hidden files, documents that are no Kubernetes objects (values.yaml), and Helm
  templates beside a Chart.yaml. Everywhere: spotgate's own policy files. Any other file that
  can't be parsed is an error; the rest is judged all the same.

examples:
  %(prog)s deploy/
  %(prog)s --state cluster/ -o json deploy/ nodepools.yaml
  helm template chart/ | %(prog)s -
  kustomize build . | %(prog)s --fail-on warn --user jane --group developers -

exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  it could not judge: a file or the state can't be read, a policy is invalid, or the command
     line is wrong
"""

FORMATS: Final = ("table", "json")
_WARN_BEFORE: Final = timedelta(days=14)
"""How long before its last day an exemption is called to mind."""


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files, folders; - is standard input")
    parser.add_argument("-o", "--output", choices=FORMATS, default="table", help="default: %(default)s")
    parser.add_argument(
        "--fail-on",
        choices=("deny", "warn", "indeterminate"),
        default="deny",
        help="the least that makes the exit code 1, each of the three including those before it; default: %(default)s",
    )
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
        help="manifests of what it has: node pools, Namespaces, Nodes; files or folders; can be given again",
    )
    cluster.add_argument("--partial", action="store_true", help="there are more node pools than the files show")
    request = parser.add_argument_group("the request that the webhook would see")
    request.add_argument(
        "--operation", choices=("CREATE", "UPDATE", "DELETE"), default="CREATE", help="default: %(default)s"
    )
    request.add_argument("--user", default="", help="user name; default: unknown, and no exemption by user holds")
    request.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="group of the user; can be given again"
    )


def run(options: Namespace) -> int:
    """Judge, report, and say how it went."""
    context = Context(phase=Phase.VALIDATE, now=utc_now(), api_server=options.kubernetes_version)
    bundle = read_policies(options.policies)
    for warning in _expiring(bundle, context.now.date()):
        print(warning, file=sys.stderr)

    given = read_manifests(options.paths, ignore=Globs(options.ignore))
    state = read_manifests(options.state)
    problems = [*given.problems, *state.problems]
    objects = [each for each in given.objects if each.group != API_VERSION.partition("/")[0]]
    view = _view(options, [*state.objects, *objects], bundle, unread=bool(problems))
    judge = Judge(
        bundle.index,
        Kinds(bundle, [*state.objects, *objects]),
        replace(context, view=view, oldest_kubelet=view.oldest_kubelet or options.kubernetes_version),
        operation=options.operation,
        user=UserInfo(options.user, tuple(options.group)),
        before=state.objects,
    )

    results: list[Result] = []
    patches: list[Patch] = []
    for each in objects:
        judgement = judge.judge(each)
        if judgement.problem is not None:
            problems.append(judgement.problem)
        results += _results(each, judgement)
        patches += _patches(each, judgement)
    skipped = given.skipped + len(given.objects) - len(objects)
    report = Report.of(results, patches, documents=len(objects), skipped=skipped)
    import_module(f"webhook.cli.output_{options.output}").show(report)
    return _finish(report, problems, Outcome[options.fail_on.upper()])


def _finish(report: Report, problems: list[Problem], fail_on: Outcome) -> int:
    if problems:
        sys.stdout.flush()
        print("\n".join(map(str, sorted(problems))), file=sys.stderr)
        return CANNOT_JUDGE
    found = any(Outcome[result.outcome.upper()] >= fail_on for result in report.results)
    return FOUND if found else FINE


def _view(options: Namespace, objects: list[Manifest], bundle: Bundle, *, unread: bool) -> ClusterView:
    """The cluster after everything that was given has been applied to what is there."""
    view = view_of(objects, bundle.providers, complete=bool(options.state))
    if options.partial:
        why = "--partial says that the cluster has more node pools than the files show."
        return replace(view, pools=None, why_unknown=why, remedy="pass all of them with --state, without --partial")
    if unread:
        why = "Some of the files can't be read, and there may be node pools in them."
        return replace(view, pools=None, why_unknown=why, remedy="mend those files first")
    return view


def _results(manifest: Manifest, judgement: Judgement) -> Iterator[Result]:
    for finding in judgement.findings:
        yield Result(
            file=manifest.file,
            line=manifest.line_of(path_of(finding.field)),
            api_version=manifest.api_version,
            kind=manifest.kind,
            namespace=judgement.namespace,
            name=manifest.shown_name,
            policy=finding.policy,
            outcome=str(finding.outcome),
            reason=finding.reason,
            detail=finding.detail,
            field=finding.field,
            fix=finding.fix,
        )


def _patches(manifest: Manifest, judgement: Judgement) -> Iterator[Patch]:
    if judgement.patch:
        yield Patch(
            file=manifest.file,
            line=manifest.line_of(()),
            kind=manifest.kind,
            namespace=judgement.namespace,
            name=manifest.shown_name,
            patch=list(judgement.patch),
        )


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
