"""The cluster around the corpus, and the Pods that controllers create."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.builders import deployment, labeled, pod
from tests.controlplane.parity.answers import Answer, connect
from tests.controlplane.parity.changes import DEPLOYMENT, POD, RAY_CLUSTER
from tests.controlplane.parity.corpus import ALICE, NAMESPACE_CONTROLLER, PLAIN, REPLICASET_CONTROLLER, SPOT
from webhook.rehearse.controlplane.control_plane import POLL_SECONDS, START_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook
    from tests.controlplane.parity.compare import Parity

JSON = dict[str, Any]
Live = dict[tuple[str, str], JSON]

POOLS, REFERENCES = (Path(__file__).with_name(name) for name in ("pools.yaml", "references.yaml"))
NODE_POOLS = "nodepools.compute.coreweave.com"
NAMED = "resourceclaimtemplates,persistentvolumeclaims,persistentvolumes,runtimeclasses"
"""The kinds of objects that Pods name."""


@contextlib.contextmanager
def populated(webhook: Webhook, namespaces: list[JSON]) -> Iterator[Live]:
    """Create the namespaces and pools of the corpus, wait for the webhook, and yield the objects by kind and name."""
    kubectl = webhook.cluster.kubectl
    names = [pool["metadata"]["name"] for pool in yaml.safe_load_all(POOLS.read_text())]
    kubectl("apply", f"--filename={POOLS}")
    kubectl.apply(*namespaces)
    made = [namespace["metadata"]["name"] for namespace in namespaces]
    for name in made:
        kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
    kubectl(*("create", "poddisruptionbudget", "x"), "--selector=app=x", "--min-available=50%", f"--namespace={SPOT}")
    kubectl("apply", f"--filename={REFERENCES}", f"--namespace={SPOT}")
    webhook.wait_for_pool(names[-1])
    webhook.wait(lambda: webhook.try_out(pod("probe"), SPOT)["spec"].get("affinity"), f"{SPOT} is known")
    with connect(webhook.cluster) as server:
        covered = deployment("x", 3) | {"metadata": {"name": "x", "namespace": SPOT}}
        webhook.wait(lambda: "PodDisruptionBudget covers" not in str(server.ask(covered, ALICE)), "the budget is known")
        for thing in (POD, DEPLOYMENT, RAY_CLUSTER):  # policies exempt built-in controllers
            assert isinstance(server.ask(thing, REPLICASET_CONTROLLER, store=True), Answer)
    objects = [
        *kubectl.get(f"nodes,namespaces,{NODE_POOLS}")["items"],
        *kubectl.get(f"poddisruptionbudgets,{NAMED}", f"--namespace={SPOT}")["items"],
        *kubectl.get("pods,deployments,rayclusters", f"--namespace={PLAIN}")["items"],
    ]
    yield {(thing["kind"], thing["metadata"]["name"]): thing for thing in objects}
    kubectl("delete", f"--filename={POOLS}")
    kubectl("delete", "persistentvolume/far", "runtimeclass/sandbox", "--wait=false")
    kubectl("delete", "namespace", *made, "--wait=false")
    asking = labeled(pod("probe"), {}, {"spotgate.dev/node-pool": names[-1]})
    webhook.wait(lambda: "nodeSelector" not in webhook.try_out(asking)["spec"], f"{names[-1]} is forgotten")


def there(thing: JSON, live: Live) -> bool:
    """Return whether the cluster has an object of that kind and name."""
    existing = live.get((thing["kind"], thing["metadata"].get("name", "")))
    return existing is not None and existing["apiVersion"] == thing["apiVersion"]


@contextlib.contextmanager
def having(thing: JSON, parity: Parity, live: Live) -> Iterator[None]:
    """Store the object in the cluster, and add it to the state of `check`."""
    if there(thing, live):
        yield
        return
    made = parity.server.ask(thing, NAMESPACE_CONTROLLER, store=True)  # whom policies exempt
    assert isinstance(made, Answer), made.message
    told = parity.offline.state / "more.json"
    told.write_text(json.dumps(made.object))
    try:
        yield
    finally:
        told.unlink()
        parity.server.ask(thing, NAMESPACE_CONTROLLER, "DELETE", store=True)


def runnable(thing: JSON, name: str) -> JSON:
    """Return the workload with one Pod, labelled with the workload's name."""
    spec, template = thing["spec"], thing["spec"]["template"]
    template["metadata"]["annotations"].pop("kubernetes.io/config.mirror", None)  # only kubelets create mirror Pods
    template["metadata"]["labels"]["app"] = name
    kept = {"selector": {"matchLabels": {"app": name}}, "replicas": 1} if "selector" in spec else {}
    return {**thing, "metadata": {**thing["metadata"], "name": name}, "spec": {**kept, "template": template}}


def pods_of(kubectl: Kubectl, names: Collection[str]) -> dict[str, JSON]:
    """Wait for the Pods of these workloads, and return them by workload."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        items = kubectl.get("pods", "--all-namespaces", "--selector=app")["items"]
        by_workload = {pod["metadata"]["labels"]["app"]: {"apiVersion": "v1", "kind": "Pod", **pod} for pod in items}
        missing = set(names) - by_workload.keys()
        if not missing:
            return {name: by_workload[name] for name in names}
        assert time.monotonic() < deadline, f"no Pods of {sorted(missing)}"
        time.sleep(POLL_SECONDS)
