"""Judge manifests before they reach a cluster: ``spotgate check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.formats import add_output, format_named, outputs_of, write_report
from webhook.offline.options import add_inputs, add_operation, add_rendered
from webhook.offline.project import take_project_file
from webhook.offline.report import object_reports, report_of
from webhook.offline.session import judge_each

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


DESCRIPTION: Final = """\
Judge manifests as the webhook would judge them, before they reach a cluster.

Judge every object in the files as the API server would: with its defaults and with the webhook's
changes, including pod templates in workloads. The objects are also state for each other: a spot
pool and its on-demand fallback may arrive together. The report shows what the webhook would inject.
check writes nothing.
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
  Built-in kinds get the defaults of Kubernetes 1.37. Fields that only a cluster sets are missing,
  also in expressions of a Validation: uid, creationTimestamp, generation, status, allocated values
  such as the addresses of a Service, and the defaults of custom resources.

what is skipped:
  In folders: hidden files, node_modules, files without a top-level `apiVersion` and `kind` (values,
  CloudFormation, encrypted files), and Helm templates next to a Chart.yaml. Everywhere:
  kustomizations, their patches, and spotgate's own policy files. A file that has both fields, or
  that you name, and that can't be parsed is an error. check judges the other files; node pools
  are unknown only if the broken file may describe some.

what is rendered:
  In folders: every kustomization that no other one uses, with kustomize or `kubectl kustomize`, and
  every chart, with `helm template`, if the program is installed. The files that they read aren't
  judged a second time. Rendering uses no network and no plugins, reads nothing outside the
  repository, and takes at most 30 seconds and 1 GiB. A folder that can't be rendered is an error,
  which names the command that judges it. --no-render judges the files as they are instead.

project file:
  policies, state, cluster, partial, ignore, chartValues, failOn and kubernetesVersion can be said
  once, in a .spotgate.yaml in the folder of the first PATH or above it. Flags win.

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
  2  it could not judge: a file, the state or the cluster can't be read, a folder can't be rendered,
     there is no object to judge, a policy is invalid, or the command line is wrong
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    add_output(parser)
    add_operation(parser)
    add_inputs(parser)
    add_rendered(parser)


def run(options: Namespace) -> int:
    """Judge the manifests and report the findings."""
    take_project_file(options)
    outputs = outputs_of(options)
    judged = judge_each(options, object_reports, trace=any(format_named(name).timelines for name, _ in outputs))
    report = report_of(
        judged.bundle,
        judged.objects,
        judged.problems,
        options,
        skipped=judged.skipped,
        not_rendered=judged.not_rendered,
    )
    return write_report(report, outputs)
