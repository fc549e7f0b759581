"""``spotgate check``: manifests, judged before they reach a cluster."""

from __future__ import annotations

import inspect
import sys
from argparse import ArgumentTypeError
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND
from webhook.cli.inputs import add_inputs, add_operation
from webhook.cli.judging import path_of
from webhook.cli.parallel import judge_each
from webhook.cli.report import Judged, Patch, PolicyTitle, Report, Result
from webhook.cli.writing import write_whole
from webhook.decision import Outcome
from webhook.policy.common import PolicySpec

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from webhook.bundle import Bundle
    from webhook.cli.judging import Judgement
    from webhook.cluster.manifests import Manifest
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
  With --operation DELETE the objects are deleted one after the other, in the order of the files.
  With --kubeconfig all of that is read from the cluster, whose version counts then too.

what is skipped:
  In a folder: hidden files, documents that are no Kubernetes objects (values.yaml), and Helm
  templates beside a Chart.yaml. Everywhere: spotgate's own policy files. Any other file that
  can't be parsed is an error; the rest is judged all the same.

examples:
  %(prog)s deploy/
  %(prog)s --state cluster/ -o json deploy/ nodepools.yaml
  helm template chart/ | %(prog)s -
  kustomize build . | %(prog)s --fail-on warn --user jane --group developers -
  %(prog)s --kubeconfig ~/.kube/config --context prod deploy/

exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  it could not judge: a file, the state or the cluster can't be read, a policy is invalid, or
     the command line is wrong
"""

FORMATS: Final = ("table", "json", "sarif", "junit", "github")


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT[=FILE]",
        type=_output,
        action="append",
        help=f"{', '.join(FORMATS)}; to a file where one is named; can be given again; default: table",
    )
    parser.add_argument(
        "--fail-on",
        choices=("deny", "warn", "indeterminate"),
        default="deny",
        help="the least that makes the exit code 1, each of the three including those before it; default: %(default)s",
    )
    add_operation(parser)
    add_inputs(parser)


def run(options: Namespace) -> int:
    """Judge, report, and say how it went."""
    judged = judge_each(options, lambda *each: (_judged(*each), list(_patches(*each))))
    report = Report.of(
        [each for each, _ in judged.reports],
        [patch for _, patches in judged.reports for patch in patches],
        judged.problems,
        skipped=judged.skipped,
        policies=_titles(judged.bundle),
    )
    for name, file in options.output or [("table", None)]:
        _put_out(report, name, file)
    return _finish(report, judged.problems, Outcome[options.fail_on.upper()])


def _put_out(report: Report, name: str, file: Path | None) -> None:
    """Print the report, or write it to a file."""
    module = import_module(f"webhook.cli.output_{name}")
    if file is not None:
        write_whole(file, f"{module.render(report)}\n".encode())
    elif name == "table":
        module.show(report)
    else:
        print(module.render(report))


def _finish(report: Report, problems: list[Problem], fail_on: Outcome) -> int:
    if problems:
        sys.stdout.flush()
        print("\n".join(map(str, sorted(problems))), file=sys.stderr)
        return CANNOT_JUDGE
    found = any(Outcome[result.outcome.upper()] >= fail_on for result in report.results)
    return FOUND if found else FINE


def _judged(manifest: Manifest, judgement: Judgement) -> Judged:
    results = []
    for finding in judgement.findings:
        line, column = manifest.position_of(path_of(finding.field))
        results.append(
            Result(
                file=manifest.file,
                line=line,
                column=column,
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
        )
    return Judged(
        file=manifest.file,
        line=manifest.line,
        kind=manifest.kind,
        namespace=judgement.namespace,
        name=manifest.shown_name,
        results=results,
    )


def _patches(manifest: Manifest, judgement: Judgement) -> Iterator[Patch]:
    if judgement.patch:
        yield Patch(
            file=manifest.file,
            line=manifest.line,
            kind=manifest.kind,
            namespace=judgement.namespace,
            name=manifest.shown_name,
            patch=list(judgement.patch),
        )


def _titles(bundle: Bundle) -> Iterator[PolicyTitle]:
    """The bundle's policies, its facts left out."""
    for policy in bundle.documents:
        if isinstance(policy.spec, PolicySpec):
            about = inspect.cleandoc(type(policy.spec).__doc__ or "")
            yield PolicyTitle(name=policy.name, kind=policy.kind, about=about)


def _output(text: str) -> tuple[str, Path | None]:
    name, _, file = text.partition("=")
    if name not in FORMATS:
        raise ArgumentTypeError(f"no format {name!r}; choose from {', '.join(FORMATS)}")
    return name, Path(file) if file else None
