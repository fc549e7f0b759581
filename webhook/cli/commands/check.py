"""``spotgate check``: manifests, judged before they reach a cluster."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND, CannotJudgeError
from webhook.cli.judging.inputs import judge_each
from webhook.cli.judging.project import take_project_file
from webhook.cli.options import add_inputs, add_operation, add_rendered
from webhook.cli.output.report import Report
from webhook.cli.output.reporting import entries, titles
from webhook.cli.output.writing import write_whole
from webhook.cli.terminal import complain
from webhook.context import utc_now
from webhook.lint import warnings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


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
  With --against REF Git says what was there, and what is no longer. With --kubeconfig all of that
  is read from the cluster, whose version counts then too.

what is defaulted:
  Built-in kinds, as Kubernetes 1.36 does it. What only a cluster gives an object is missing, in
  expressions of a Validation too: uid, creationTimestamp, generation, status, what it allocates
  (the addresses of a Service), and the defaults of custom resources, which are in their CRDs.

what is skipped:
  In a folder: hidden files, node_modules, documents that are no Kubernetes objects (values.yaml),
  and Helm templates beside a Chart.yaml. Everywhere: spotgate's own policy files. Any other file
  that can't be parsed is an error; the rest is judged all the same.

project file:
  policies, state, partial, ignore, failOn and kubernetesVersion can be said once, in a
  .spotgate.yaml in the folder of the first PATH or above it. Flags win.

examples:
  %(prog)s deploy/
  %(prog)s --state cluster/ -o json deploy/ nodepools.yaml
  %(prog)s --changed-since origin/main --against origin/main deploy/
  %(prog)s --kustomize overlays/prod --helm charts/web
  helm template chart/ | %(prog)s --fail-on warn --user jane --group developers -
  %(prog)s --kubeconfig ~/.kube/config --context prod deploy/

exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  it could not judge: a file, the state or the cluster can't be read, a policy is invalid, or
     the command line is wrong
"""

FORMATS: Final = ("table", "json", "sarif", "junit", "github", "gitlab", "policyreport", "html")

DRAWING: Final = ("html",)
"""Formats with timelines, for which a judgement has to keep how it came about."""

TITLED: Final = ("sarif", "policyreport", "html")
"""Formats that say what policies are for: the models say that, whose import is slow."""


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
        help="the least that makes the exit code 1, each of the three including those before it; default: deny",
    )
    add_operation(parser)
    add_inputs(parser)
    add_rendered(parser)


def run(options: Namespace) -> int:
    """Judge, report, and say how it went."""
    take_project_file(options)
    outputs = options.output or [("table", None)]
    if problem := _clash(outputs):
        raise CannotJudgeError(f"error: {problem}")
    names = {name for name, _ in outputs}
    judged = judge_each(options, entries, trace=not names.isdisjoint(DRAWING))
    report = Report.of(
        [each for each, _ in judged.reports],
        [patch for _, patch in judged.reports if patch is not None],
        judged.problems,
        skipped=judged.skipped,
        policies=titles(judged.bundle) if any(name in TITLED for name, _ in outputs) else (),
        warnings=warnings(judged.bundle, utc_now().date()),
        fail_on=options.fail_on,
    )
    unwritten = [problem for name, file in outputs if (problem := _put_out(report, name, file))]
    return _finish(report, [*map(str, sorted(judged.problems)), *unwritten])


def _put_out(report: Report, name: str, file: Path | None) -> str:
    """Print the report, or write it to a file. Returns why the file can't be written, or nothing."""
    module = import_module(f"webhook.cli.output.{name}")
    if file is not None:
        try:
            write_whole(file, f"{module.render(report)}\n".encode())
        except OSError as error:
            fix = "its folder must be there and writable; or name another file"
            return f"error: -o {name}={file}: can't be written: {error.strerror or error}; {fix}"
    elif name == "table":
        module.show(report)
    else:
        print(module.render(report))
    return ""


def _finish(report: Report, problems: list[str]) -> int:
    if problems:
        sys.stdout.flush()
        complain(*problems)
        return CANNOT_JUDGE
    return FOUND if any(map(report.fails, report.results)) else FINE


def _clash(outputs: list[tuple[str, Path | None]]) -> str:
    """What is wrong with the outputs, taken together: each needs a place of its own."""
    seen: dict[str, str] = {}
    for name, file in outputs:
        place = "" if file is None else os.path.realpath(file)
        if place in seen:
            where = "standard output" if file is None else f"the file {file}"
            return (
                f"-o {seen[place]} and -o {name} both go to {where}; write one of them to another file: -o {name}=FILE"
            )
        seen[place] = name
    return ""


def _output(text: str) -> tuple[str, Path | None]:
    name, named, file = text.partition("=")
    if name not in FORMATS:
        raise ArgumentTypeError(f"no format {name!r}; choose from {', '.join(FORMATS)}")
    if named and not file:
        raise ArgumentTypeError(f"{text!r} names no file; write {name}=FILE, or {name} for standard output")
    return name, Path(file) if file else None
