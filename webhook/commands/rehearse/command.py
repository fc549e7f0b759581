"""Rehearse the loss of spot nodes with the real scheduler: ``spotgate rehearse``.

Rehearse the loss of nodes: which Pods move, stay pending, or are killed early, and which services
fall below their budget.

kube-scheduler, the controllers, the Eviction API and spotgate are real, on a control plane that
runs on this machine. Nodes are simulated. rehearse writes to a live cluster only with --publish.

examples:
  %(prog)s --lose gpu-spot --state cluster/ deploy/
  %(prog)s --lose zone:eu-west-1a --kubeconfig ~/.kube/config --max-pending 0
  %(prog)s --lose 30%% --state cluster/ --grow cpu-on-demand=2:90 -o json
  %(prog)s --lose gpu-spot --state cluster/ deploy/ --with-fixes -o html > reclaim.html
  %(prog)s --prepare --kubeconfig ~/.kube/config

exit codes:
  0  rehearsed, and at most --max-pending Pods are pending or missing
  1  more Pods are pending or missing
  2  spotgate could not rehearse
"""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, get_args

from msgspec import structs

from webhook.base.exits import FINE, FOUND, CannotJudgeError
from webhook.base.terminal import complain
from webhook.commands.shared.flags import (
    add_cluster,
    add_connection,
    add_format,
    add_list,
    add_policies,
    object_name,
    options_of,
    path,
)
from webhook.commands.shared.help import help_of
from webhook.inputs.objects import read_manifests
from webhook.inputs.policies import read_policies
from webhook.kube.quantity import amount_of
from webhook.rehearse.compare import compare, try_fixes, write_base
from webhook.rehearse.fixes import fixes_of, growth_of, with_fixes
from webhook.rehearse.inputs.selection import grown_nodes, loss_of
from webhook.rehearse.inputs.snapshot import ClusterSnapshot, snapshot_of
from webhook.rehearse.inputs.source import ClusterSource
from webhook.rehearse.options import RehearseOptions
from webhook.rehearse.result import DrainedBy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.engine.bundle import Bundle
    from webhook.rehearse.inputs.selection import Growth
    from webhook.rehearse.result import Fix, Rehearsal


DESCRIPTION, EPILOG = help_of(__doc__)


FORMATS: Final = ("table", "json", "html")


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=path,
        help="files and folders with the manifests of workloads; - reads standard input",
    )
    lost = (
        "the nodes to lose: all nodes of POOL or selector:KEY=VALUE; the spot nodes of provider:NAME, type:NAME, or "
        "zone:NAME; or a share of them: N%% (of all spot nodes), N%%of:POOL, N%%of:zone:NAME ...; repeatable"
    )
    add_list(parser, "--lose", "WHAT", lost)
    often = "how often to rehearse the reclaim, because results vary; default: %(default)s"
    parser.add_argument("--runs", metavar="N", type=partial(_count, least=1), default=3, help=often)
    many = "exit with 1 if more than N Pods are pending or missing at the end; default: no limit"
    parser.add_argument("--max-pending", metavar="N", type=_count, help=many)
    again = parser.add_mutually_exclusive_group()
    base = "also rehearse the files at the merge base of HEAD and REF, and report the differences"
    again.add_argument("--compare", metavar="REF", help=base)
    fixes = "rehearse again with all proposed fixes, then without each of them, and rank the fixes by their effect"
    again.add_argument("--with-fixes", action="store_true", help=fixes)
    one_by_one = "how long --with-fixes can try fixes one by one; default: %(default)s"
    parser.add_argument("--fix-seconds", metavar="N", type=_count, default=180, help=one_by_one)
    nightly = (
        "rehearse each --lose separately (default: each pool with spot Nodes), and write the results to this ConfigMap "
        "of the live cluster, and to a PolicyReport of the same name if the cluster has the kind"
    )
    name = partial(object_name, kind="ConfigMap", example="spotgate-rehearsal")
    again.add_argument("--publish", metavar="NAMESPACE/NAME", type=name, help=nightly)
    add_format(parser, FORMATS)
    _add_cluster(parser)
    _add_model(parser)
    add_policies(parser)
    _add_programs(parser)


def _add_cluster(parser: ArgumentParser) -> None:
    cluster = parser.add_argument_group("the cluster")
    has = "Nodes, node pools, PodDisruptionBudgets, running Pods; files or folders; repeatable"
    add_list(cluster, "--state", "PATH", f"manifests of objects in the cluster: {has}")
    add_connection(cluster, "read a live cluster, without Secrets or ConfigMaps")
    add_cluster(cluster)


def _add_model(parser: ArgumentParser) -> None:
    model = parser.add_argument_group("the simulation")
    stops = "what stops the Pods of the lost nodes; default: from the provider's document"
    model.add_argument("--drained-by", choices=get_args(DrainedBy), help=stops)
    come = "add N nodes to the pool, SECONDS after the notice; default: 120; repeatable"
    add_list(model, "--grow", "POOL=N[:SECONDS]", come, _growth)
    offers = "allocatable resources of a node, by instance type or pool: m6i.large=cpu=2,memory=8Gi; repeatable"
    add_list(model, "--allocatable", "TYPE=RESOURCE=AMOUNT,...", offers, _allocatable)
    ready = "time from the binding of a Pod until it is ready; default: measured in a live cluster, otherwise 30"
    model.add_argument("--startup-seconds", metavar="N", type=_count, default=30, help=ready)
    grown = "time from the notice until a proposed pool has new nodes; default: from the provider's document"
    model.add_argument("--provisioning-seconds", metavar="N", type=_count, help=grown)
    profiles = "a KubeSchedulerConfiguration; default: that of kube-scheduler"
    model.add_argument("--scheduler-config", metavar="FILE", type=Path, help=profiles)


def _add_programs(parser: ArgumentParser) -> None:
    programs = parser.add_argument_group("the programs of the control plane")
    folder = "a folder with the programs; default: $KUBEBUILDER_ASSETS, otherwise the cache, which the first run fills"
    programs.add_argument("--binaries", metavar="DIR", type=Path, help=folder)
    fill = "fill the cache with the programs for the cluster of --kubeconfig, and don't rehearse"
    programs.add_argument("--prepare", action="store_true", help=fill)


def run(namespace: Namespace) -> int:
    """Rehearse and print the results."""
    options = options_of(RehearseOptions, namespace)
    # Like Ctrl-C: stops the started programs.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    if options.prepare:
        return _prepare(options)
    if not (options.lose or options.publish):
        raise CannotJudgeError("spotgate rehearse: error: name the nodes to lose: --lose POOL, 30%, zone:NAME ...")
    rehearsing = Rehearsals(options, read_policies(options.policies, cluster=options.cluster))
    snapshot = rehearsing.read([*options.state, *options.paths])
    if options.publish is not None:
        from webhook.commands.rehearse.publish import publish, spot_pools

        pools = options.lose or spot_pools(snapshot.nodes)
        return publish(options, options.publish, pools, partial(rehearsing.run, snapshot))
    result = rehearsing.run(snapshot, options.lose)
    if options.with_fixes and result.fixes:
        result = try_fixes(result, partial(rehearsing.run, snapshot, options.lose), options.fix_seconds)
    elif options.compare is not None:
        result = structs.replace(result, comparison=compare(rehearsing.run_base(), result, options.compare))
    import_module(f"webhook.rehearse.output.{options.output}").show(result)
    summary, most = result.summary, options.max_pending
    return FOUND if most is not None and (summary.pending.max or 0) + (summary.missing.max or 0) > most else FINE


def _prepare(options: RehearseOptions) -> int:
    from webhook.rehearse.inputs.live import live_version
    from webhook.rehearse.runs.programs import prepare

    programs = prepare(None if options.kubeconfig is None else live_version(options))
    complain(f"spotgate: Kubernetes {programs.version} is ready: {programs.paths['kube-scheduler'].parent}")
    return FINE


def _count(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ArgumentTypeError(f"{text!r} isn't a valid number: write {least}, {least + 1}, {least + 2} ...")
    return int(text)


def _growth(text: str) -> Growth:
    pool, equals, size = text.rpartition("=")
    number, _, seconds = size.partition(":")
    if not (pool and equals and number.isdecimal() and (seconds or "0").isdecimal()):
        raise ArgumentTypeError(f"{text!r} is invalid: write POOL=N or POOL=N:SECONDS, as in cpu-on-demand=2:90")
    return pool, int(number), float(seconds or 120)


def _allocatable(text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition("=")
    offered = dict(pair.split("=", 1) for pair in rest.split(",") if "=" in pair)
    if not name or not offered or any(amount_of(amount) is None for amount in offered.values()):
        raise ArgumentTypeError(f"{text!r} has no resources: write TYPE=cpu=8,memory=32Gi,nvidia.com/gpu=8")
    return name, offered


@dataclass(frozen=True, slots=True)
class Rehearsals:
    """Rehearsals with the same options and policies. All methods raise CannotJudgeError."""

    options: RehearseOptions
    bundle: Bundle

    def read(self, paths: Sequence[str]) -> ClusterSnapshot:
        """Read the cluster and these manifests."""
        options = self.options
        manifests = read_manifests(paths)
        if manifests.problems:
            raise CannotJudgeError("\n".join(map(str, manifests.problems)))
        source = ClusterSource(manifests=manifests.objects)
        if options.publish is not None or options.kubeconfig is not None:
            from webhook.rehearse.inputs.live import live_source

            source = live_source(options, manifests.objects, self.bundle)
        return snapshot_of(source, self.bundle, dict(options.allocatable))

    def run(
        self, snapshot: ClusterSnapshot, lose: Sequence[str], fixes: Sequence[Fix] = (), runs: int | None = None
    ) -> Rehearsal:
        """Rehearse the loss of these values of ``--lose``, with these fixes applied."""
        from webhook.rehearse.runs.rehearsal import rehearse

        options = self.options
        loss, growth = loss_of(lose, snapshot, options.drained_by), options.grow
        if fixes:
            snapshot = with_fixes(snapshot, fixes)
            growth = [*growth, *growth_of(snapshot, options.provisioning_seconds)]
        loss = replace(loss, grown=grown_nodes(growth, snapshot))
        result = rehearse(snapshot, loss, options, runs or options.runs)
        return structs.replace(result, fixes=fixes_of(result, snapshot))

    def run_base(self) -> Rehearsal:
        """Rehearse the manifests of the merge base with the current policies."""
        options = self.options
        with TemporaryDirectory(prefix="spotgate-") as folder:
            try:
                snapshot = self.read(write_base(options.compare or "", [*options.state, *options.paths], Path(folder)))
                return self.run(snapshot, options.lose)
            except CannotJudgeError as error:
                raise CannotJudgeError(f"{error}\nin the base, {options.compare}".replace(f"{folder}/", "")) from None
