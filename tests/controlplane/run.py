"""Run a small CKS cluster with spotgate to experiment with, until Ctrl-C.

`python -m tests.controlplane.run [--controller] [POLICIES]`: POLICIES is a folder of your own policies, in addition to the
shipped ones. With `--controller`, the controllers of the on-demand floor and of reclaim notices run, too.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING

from tests.controlplane.floor.harness import controllers
from tests.controlplane.harness.cluster import start_cluster
from tests.controlplane.harness.kubectl import KubectlError
from tests.controlplane.harness.populate import populate
from tests.controlplane.harness.webhook import WebhookError, install_webhook
from tests.programs import VERSION
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report
from webhook.rehearse.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from types import FrameType

    from tests.controlplane.harness.webhook import Webhook

# The state of `make run`, so that the examples have the same outcome.
STATE = Path(__file__).parents[2] / "examples" / "state"


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Start everything, print how to use it, and wait."""
    parser = ArgumentParser(prog="python -m tests.controlplane.run")
    parser.add_argument("--controller", action="store_true")
    parser.add_argument("policies", nargs="*")
    options = parser.parse_args()
    for number in ENDS:
        signal.signal(number, end)
    try:
        binaries = find_or_build()
        report(f"starting Kubernetes {VERSION} and spotgate, some ten seconds")
        with start_cluster(binaries) as cluster:
            populate(cluster.kubectl, STATE)
            with contextlib.ExitStack() as stack:
                webhook = stack.enter_context(install_webhook(cluster, options.policies))
                if options.controller:
                    stack.enter_context(controllers(cluster))
                    stack.enter_context(controllers(cluster, component="reclaim-notice", duty="notice"))
                sys.stdout.write(how_to_use(webhook))
                sys.stdout.flush()
                signal.pause()
    except KeyboardInterrupt:
        report("the cluster is gone")
    except (BinariesError, ControlPlaneError, KubectlError, WebhookError) as error:
        sys.exit(f"spotgate: {error}")


def end(_number: int, _frame: FrameType | None) -> None:
    """Clean up, and ignore further signals."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def how_to_use(webhook: Webhook) -> str:
    """Return commands that use the cluster, for the project's folder."""
    kubectl = webhook.cluster.kubectl
    pools = kubectl("get", "nodepools.compute.coreweave.com")
    return f"""\
{pools}
In another terminal, in this folder:
    export KUBECONFIG={kubectl.kubeconfig}
    export PATH={kubectl.program.parent}:$PATH
A misspelt label of the platform's, a Deployment that asks for spot, and the last on-demand GPU pool:
    kubectl apply -f examples/deployment-misspelt-qos-label.yaml
    kubectl apply -f examples/web-on-spot.yaml && kubectl get pods -n shop -o wide
    kubectl delete -f examples/state/nodepool-h100-on-demand.yaml
The verdicts on both Deployments, without applying them:
    .venv/bin/spotgate check --kubeconfig $KUBECONFIG examples/deployment-misspelt-qos-label.yaml examples/web-on-spot.yaml
docs/control-plane.md has more commands to try. Nothing is pulled and nothing runs: Nodes and the Pods on them are fake,
Kubernetes {VERSION} and spotgate are not.
What spotgate decides: {webhook.process.log}; what it counts: http://{webhook.ops}/metrics
Logs of Kubernetes: {webhook.cluster.directory}/*.log
Ctrl-C ends and deletes it all.
"""


if __name__ == "__main__":
    main()
