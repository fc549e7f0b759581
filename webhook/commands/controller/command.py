"""Maintain on-demand floors, and tell Pods of reclaims: ``spotgate controller``.

Maintain the on-demand floor of workloads, and tell Pods of the reclaim of their Node.

floor: the webhook gates the Pods of workloads with the annotation spotgate.dev/on-demand-floor.
One leader counts the Pods of each ReplicaSet, and assigns each gated Pod to on-demand or to spot
nodes. Without a leader the webhook gates no Pods.

notice: when a Node shows that it is being reclaimed, one leader writes the time of the removal
into the annotation spotgate.dev/reclaim-at of its Pods with the label spotgate.dev/on-reclaim.
With the value evict, it also evicts the Pod, with all the time that is left.

Run two replicas. A Lease for each duty elects its leader.

examples:
  %(prog)s --in-cluster
  %(prog)s --in-cluster --duties floor,notice
  %(prog)s --kubeconfig ~/.kube/config --policies policies/
  %(prog)s --release

exit codes:
  0  stopped by a signal or a policy change; or all Pods that waited are released
  2  policies, credentials, or the address can't be used; or a Pod can't be released
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.base.exits import FINE, CannotJudgeError
from webhook.base.terminal import counted
from webhook.cluster.connection import Connection, run_on_cluster
from webhook.commands.shared.flags import add_address, add_cluster, add_namespace, add_policies, options_of
from webhook.commands.shared.help import help_of
from webhook.controller.release import release
from webhook.controller.run import DUTIES, ControllerOptions
from webhook.controller.run import run as run_controller

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument("--in-cluster", action="store_true", help="use the Pod's ServiceAccount")
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="the kubeconfig file of the cluster")
    text = f"what to do: {' and '.join(DUTIES)}, with a comma; default: floor"
    parser.add_argument("--duties", metavar="NAMES", type=_duties, default=("floor",), help=text)
    add_policies(parser)
    add_cluster(parser)
    add_namespace(parser, "the namespace of the Leases")
    add_address(parser, "--ops", "operators'", 8080)
    text = "only remove the gate from waiting Pods, of one namespace or of all; default: kubectl's cluster"
    parser.add_argument("--release", metavar="NAMESPACE", nargs="?", const="", help=text)


def _duties(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in DUTIES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} isn't a duty; write {', '.join(DUTIES)}, or both")
    return names


def run(namespace: Namespace) -> int:
    """Run the controller until a signal or a policy change stops it, or release the Pods that wait for it."""
    if namespace.release is not None:
        connection, work = options_of(Connection, namespace), lambda api: release(api, namespace.release)
        print(f"released {counted(run_on_cluster('controller', connection, work), 'Pod')}")
        return FINE
    options = options_of(ControllerOptions, namespace)
    if options.in_cluster == (options.kubeconfig is not None):
        raise CannotJudgeError("spotgate controller: error: give either --in-cluster or --kubeconfig")
    return run_controller(options)
