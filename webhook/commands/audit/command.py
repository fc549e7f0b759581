"""Evaluate the objects of a live cluster: ``spotgate audit``.

Evaluate the objects of a live cluster as if they were created now, and list the workloads on spot
Nodes that would not survive a reclaim.

audit never reads Secrets or ConfigMaps, and writes nothing without --write-reports.

examples:
  %(prog)s
  %(prog)s --fail-on warn -o table -o sarif=audit.sarif
  %(prog)s --in-cluster --policies shipped --policies /etc/spotgate/own --write-reports

exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  a part of the cluster can't be read, a policy is invalid, or reports can't be written
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.base.exits import CannotJudgeError
from webhook.base.terminal import complain
from webhook.cluster.connection import Connection, missing_rules, run_on_cluster
from webhook.commands.shared.flags import add_cluster, add_connection, add_list, add_policies, options_of, resource_name
from webhook.commands.shared.help import help_of
from webhook.formats import add_output, outputs_of, write_report
from webhook.inputs.policies import read_policies
from webhook.report.report import Report, policy_kinds_of, policy_warnings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    from webhook.cluster.api import Api
    from webhook.commands.audit.run import Audited

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    add_connection(parser)
    parser.add_argument("--in-cluster", action="store_true", help="use the Pod's ServiceAccount")
    add_policies(parser)
    add_cluster(parser)
    only = "only objects in this namespace; repeatable; default: all objects"
    add_list(parser, "--namespace", "NAME", only, resource_name, short="-n")
    add_output(parser)
    parser.set_defaults(fail_on="deny")
    parser.add_argument(
        "--write-reports",
        action="store_true",
        help="write findings at or above --fail-on to a PolicyReport in each namespace, and delete outdated reports",
    )


@dataclass(frozen=True, slots=True)
class AuditOptions(Connection):
    """The parsed flags, except the output formats."""

    policies: list[Path]
    cluster: str
    namespace: list[str]
    write_reports: bool
    fail_on: str
    verbose: bool


def run(namespace: Namespace) -> int:
    """Evaluate the objects of the cluster and report the findings."""
    outputs, options = outputs_of(namespace.output), options_of(AuditOptions, namespace)
    if options.in_cluster and (options.kubeconfig is not None or options.context is not None):
        raise CannotJudgeError("error: --in-cluster and --kubeconfig both say which cluster; give one of them")
    bundle = read_policies(options.policies, cluster=options.cluster)

    async def work(api: Api) -> tuple[Audited, Report]:
        from webhook.commands.audit.run import audit
        from webhook.commands.shared.policy_reports import report_kinds, write_reports

        audited = await audit(api, bundle, options.namespace)
        report = Report(
            objects=audited.objects,
            fine=audited.judged - len(audited.objects),
            unreadable=sorted(audited.problems),
            kinds=policy_kinds_of(bundle),
            warnings=policy_warnings(bundle),
            fail_on=options.fail_on,
            verbose=options.verbose,
            on_spot=list(audited.on_spot.risks()),
        )
        if options.write_reports and not audited.problems:
            written, deleted = await write_reports(api, report_kinds(audited.served), report, options.namespace)
            complain(f"reports: {written} applied, {deleted} deleted")
        return audited, report

    audited, report = run_on_cluster("audit", options, work)
    return write_report(report, outputs, missing_rules(audited.forbidden))
