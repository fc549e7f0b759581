"""Evaluate manifests before they reach a cluster: ``spotgate check``.

Check manifests before they reach a cluster, with the verdict that the webhook would give.

check applies the API server's defaults and the webhook's changes, and evaluates every object and
pod template. All objects count as one cluster. check changes no manifests.

missing facts:
  Findings that need more facts are `indeterminate`, and name the flag to pass. If the files and
  --state contain node pools, but not all, use --partial. For --operation UPDATE, pass the old
  objects with --state.

defaults:
  Built-in kinds get the defaults of Kubernetes 1.37, whatever --kubernetes-version is. Fields that
  only a cluster sets are missing.

skipped files:
  In folders: hidden files, node_modules, files without a top-level `apiVersion` and `kind`, and
  Helm templates. Everywhere: kustomization files, their patches, and policy files.

project file:
  .spotgate.yaml in the folder of the first PATH, or above it, sets policies, state, cluster, partial,
  ignore, chartValues, failOn, and kubernetesVersion. Flags take precedence.

examples:
  %(prog)s deploy/
  %(prog)s --state cluster/ -o json deploy/ nodepools.yaml
  %(prog)s --changed-since origin/main --against origin/main deploy/
  helm template chart/ | %(prog)s --fail-on warn --user jane --group developers -
  %(prog)s --kubeconfig ~/.kube/config --context prod deploy/

exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  an input can't be read, rendered, or evaluated, there is no object, or a policy is invalid
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.commands.shared.flags import add_inputs, add_operation, add_rendered
from webhook.commands.shared.help import help_of
from webhook.commands.shared.options import judging_options
from webhook.formats import add_output, format_named, outputs_of, write_report
from webhook.judging.session import judge_each
from webhook.report.report import Report, object_reports, policy_kinds_of, policy_warnings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    add_output(parser)
    add_operation(parser)
    add_inputs(parser)
    add_rendered(parser)


def run(namespace: Namespace) -> int:
    """Evaluate the manifests and report the findings."""
    options = judging_options(namespace)
    outputs = outputs_of(namespace.output)
    judged = judge_each(options, object_reports, trace=any(format_named(name).timelines for name, _ in outputs))
    report = Report(
        objects=judged.objects,
        skipped=judged.skipped,
        not_rendered=len(judged.not_rendered),
        unreadable=sorted(judged.problems),
        kinds=policy_kinds_of(judged.bundle),
        warnings=[*policy_warnings(judged.bundle), *judged.not_rendered],
        fail_on=options.fail_on,
        verbose=namespace.verbose,
    )
    return write_report(report, outputs)
