"""Ways to bypass the policies as a tenant with kubectl; each of them worked in the past."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import labeled, node_pool, pod
from tests.controlplane.harness.populate import POOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl, Result

pytestmark = pytest.mark.usefixtures("webhook")

RESERVED = {"a.coreweave.com/mine": "x"}
NODE_POOLS = "nodepools.compute.coreweave.com"
BREAK_GLASS = "spotgate.dev/break-glass"


def patch(kubectl: Kubectl, thing: str, metadata: dict[str, Any], *arguments: str) -> Result:
    return kubectl.run(
        "patch", *thing.split("/"), "--type=merge", f"--patch={json.dumps({'metadata': metadata})}", *arguments
    )


def denied(result: Result, *texts: str) -> bool:
    return result.returncode != 0 and all(text in result.stderr for text in ("denied the request", *texts))


@pytest.mark.parametrize(
    ("name", "labels"), [("cw-mine", {}), ("mine-labelled", {"ns.coreweave.cloud/org": "control-plane"})]
)
def test_a_user_cannot_create_a_namespace_that_policies_skip(alice: Kubectl, name: str, labels: dict[str, str]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    assert denied(alice.run("create", "--filename=-", documents=json.dumps(namespace)), "[reserved-namespaces]")


@pytest.mark.parametrize("arguments", [(), ("--subresource=status",)])
def test_a_user_cannot_exempt_a_namespace(alice: Kubectl, namespace: str, arguments: tuple[str, ...]) -> None:
    labels = {"ns.coreweave.cloud/org": "control-plane"}
    assert denied(patch(alice, f"namespace/{namespace}", {"labels": labels}, *arguments), "[reserved-namespaces]")
    assert patch(alice, f"namespace/{namespace}", {"labels": {"spotgate.dev/capacity": "spot"}}).returncode == 0


def test_a_user_cannot_bypass_policies_with_a_mirror_pod(team: Kubectl) -> None:
    mirror = labeled(pod("mirror", nodeName="cpu-0"), RESERVED, {"kubernetes.io/config.mirror": "x"})
    assert denied(team.run("create", "--filename=-", documents=json.dumps(mirror)), "[reserved-labels]")


def test_status_and_binding_cannot_add_a_reserved_label(team: Kubectl, namespace: str) -> None:
    team("create", "--filename=-", documents=json.dumps(pod("waiting", schedulerName="nobody")))
    assert denied(patch(team, "pod/waiting", {"labels": RESERVED}, "--subresource=status"), "[reserved-labels]")
    mirror = {"kubernetes.io/config.mirror": "x"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "waiting", "namespace": namespace, "labels": RESERVED, "annotations": mirror},
        "target": {"kind": "Node", "name": "cpu-0"},
    }
    for path in ("pods/waiting/binding", "bindings"):
        where = f"--raw=/api/v1/namespaces/{namespace}/{path}"
        assert denied(team.run("create", where, "--filename=-", documents=json.dumps(binding)), "[reserved-labels]")
    assert RESERVED.keys().isdisjoint(team.get("pod", "waiting")["metadata"].get("labels", {}))


def test_a_pod_with_a_node_name_gets_a_warning(team: Kubectl) -> None:
    bound = json.dumps(pod("bound", nodeName="cpu-0"))
    said = team.run("create", "--dry-run=server", "--filename=-", documents=bound)
    assert said.returncode == 0
    assert "Warning: [spot-placement] spec.nodeName binds the Pod to a node" in said.stderr


def test_a_reserved_label_is_denied_on_a_pod_that_is_too_large_to_judge(team: Kubectl) -> None:
    selector = {f"key-{number}": "" for number in range(115_000)}  # 1.7 MiB of JSON, which etcd still accepts
    large = labeled(pod("large", nodeSelector=selector), RESERVED)
    result = team.run("create", "--filename=-", documents=json.dumps(large))
    assert result.returncode == 1
    assert "label a.coreweave.com/mine is in the reserved domain coreweave.com (at metadata.labels" in result.stderr
    assert "of memory, more than the maximum of 16" in result.stderr
    assert team("get", "pods", "--output=name") == ""


@pytest.fixture
def fallbacks(kubectl: Kubectl) -> Iterator[list[str]]:
    """Yield the two on-demand pools that h100-spot can fall back on, and restore them afterwards."""
    kubectl.apply(node_pool("h100-too", targetNodes=1))
    yield ["h100", "h100-too"]
    kubectl("apply", f"--filename={POOLS}")
    kubectl("delete", NODE_POOLS, "h100-too", "--ignore-not-found")


def test_one_of_two_last_fallbacks_survives_concurrent_deletion(
    alice: Kubectl, kubectl: Kubectl, fallbacks: list[str]
) -> None:
    for _ in range(6):
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(lambda name: alice.run("delete", NODE_POOLS, name), fallbacks))
        assert sorted(result.returncode for result in results) == [0, 1]
        (refused,) = (result for result in results if result.returncode)
        assert denied(refused, "is the last on-demand fallback")
        (gone,) = (name for name, result in zip(fallbacks, results, strict=True) if not result.returncode)
        kubectl.apply(node_pool(gone, targetNodes=1))


def test_the_last_fallback_cannot_get_an_owner(alice: Kubectl, kubectl: Kubectl, fallbacks: list[str]) -> None:
    one, two = fallbacks
    kubectl("delete", NODE_POOLS, two)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0d5a1b3e-0000-4000-8000-000000000000"}
    pool = f"{NODE_POOLS}/{one}"
    assert denied(patch(alice, pool, {"ownerReferences": [owner]}), "garbage collector")


def test_break_glass_works_only_for_the_policys_groups_and_is_always_audited(
    cluster: Cluster, alice: Kubectl, kubectl: Kubectl, fallbacks: list[str]
) -> None:
    one, two = fallbacks
    kubectl("delete", NODE_POOLS, two)
    annotate = ("annotate", NODE_POOLS, one, f"{BREAK_GLASS}=incident 42")
    erin = ("--as=erin", "--as-group=system:masters")
    assert denied(alice.run(*annotate), "[object/break-glass-forbidden]")
    alice(*annotate, *erin)
    seen = len(cluster.audit_events())
    last = f"NodePool {one} is the last on-demand fallback of GPU spot pool NodePool h100-spot"
    assert denied(alice.run("delete", NODE_POOLS, one), f"[on-demand-fallback] {last}")
    deleted = alice.run("delete", NODE_POOLS, one, *erin)
    assert deleted.returncode == 0
    assert deleted.stderr.startswith(f"Warning: [on-demand-fallback] {last}")
    events = [event for event in cluster.audit_events()[seen:] if event["verb"] == "delete"]
    assert [
        {key: text for key, text in event["annotations"].items() if key.startswith("node-pools.spotgate.dev/")}
        for event in events
    ] == [
        {
            "node-pools.spotgate.dev/on-demand-fallback": f"deny on-demand-fallback/last-fallback: {last}",
            "node-pools.spotgate.dev/break-glass-refused": "alice: incident 42",
        },
        {
            "node-pools.spotgate.dev/on-demand-fallback": f"warn on-demand-fallback/last-fallback: {last}",
            "node-pools.spotgate.dev/break-glass": "erin: incident 42",
        },
    ]
