"""A small CKS cluster to try things on, until Ctrl-C: `python -m tests.controlplane.run`."""

from __future__ import annotations

import signal
import sys

from tests.controlplane.binaries import BinariesError, find_or_build, report
from tests.controlplane.cluster import Cluster, ClusterError, start_cluster
from tests.controlplane.kubectl import KubectlError
from tests.controlplane.populate import populate


def install_webhook(cluster: Cluster) -> None:
    """What is to run in the cluster once its pools and Nodes are there."""


def main() -> None:
    """Start everything, say how to use it, and wait."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with start_cluster(find_or_build()) as cluster:
            populate(cluster.kubectl)
            install_webhook(cluster)
            sys.stdout.write(how_to_use(cluster))
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        report("the cluster is gone")
    except (BinariesError, ClusterError, KubectlError) as error:
        sys.exit(f"spotgate: {error}")


def how_to_use(cluster: Cluster) -> str:
    """What to type to get at the cluster."""
    return f"""\
{cluster.kubectl("version")}{cluster.kubectl("get", "nodes", "--label-columns=compute.coreweave.com/node-pool")}
In another terminal:
    export KUBECONFIG={cluster.kubectl.kubeconfig}
    export PATH={cluster.kubectl.program.parent}:$PATH
    kubectl get nodepools.compute.coreweave.com
    kubectl create deployment web --image=registry.example.com/web:1 --replicas=3
    kubectl get pods --output=wide
Nothing is pulled and nothing runs: Nodes and the Pods on them are fake, the rest is Kubernetes.
Logs of its servers: {cluster.directory}/*.log
Ctrl-C ends and deletes it.
"""


if __name__ == "__main__":
    main()
