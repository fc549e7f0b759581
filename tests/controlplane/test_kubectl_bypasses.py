"""Ways around the policies that one tenant has, tried with kubectl: each was open."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.populate import POOLS
from tests.objects import node_pool, pod, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.kubectl import Kubectl, Result

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
    ("name", "labels"),
    [("cw-mine", {}), ("mine-labelled", {"ns.coreweave.cloud/org": "control-plane"})],
)
def test_nobody_makes_a_namespace_that_would_be_left_alone(alice: Kubectl, name: str, labels: dict[str, str]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    assert denied(alice.run("create", "--filename=-", documents=json.dumps(namespace)), "[reserved-namespaces]")


@pytest.mark.parametrize("arguments", [(), ("--subresource=status",)])
def test_nobody_turns_a_namespace_into_one(alice: Kubectl, namespace: str, arguments: tuple[str, ...]) -> None:
    labels = {"ns.coreweave.cloud/org": "control-plane"}
    assert denied(patch(alice, f"namespace/{namespace}", {"labels": labels}, *arguments), "[reserved-namespaces]")
    assert patch(alice, f"namespace/{namespace}", {"labels": {"spotgate.dev/capacity": "spot"}}).returncode == 0


def test_nobody_gets_past_as_a_mirror_pod(team: Kubectl) -> None:
    mirror = saying(pod("mirror", nodeName="cpu-0"), RESERVED, {"kubernetes.io/config.mirror": "x"})
    assert denied(team.run("create", "--filename=-", documents=json.dumps(mirror)), "[reserved-labels]")


def test_neither_status_nor_binding_puts_a_label_on_a_pod(team: Kubectl, namespace: str) -> None:
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


def test_who_names_a_node_by_hand_is_told(team: Kubectl) -> None:
    bound = json.dumps(pod("bound", nodeName="cpu-0"))
    said = team.run("create", "--dry-run=server", "--filename=-", documents=bound)
    assert said.returncode == 0
    assert "Warning: [spot-placement] spec.nodeName binds the Pod to a node" in said.stderr


@pytest.fixture
def fallbacks(kubectl: Kubectl) -> Iterator[list[str]]:
    """Yield the two on-demand pools that h100-spot can fall back on; what becomes of them is mended afterwards."""
    kubectl.apply(node_pool("h100-too", targetNodes=1))
    yield ["h100", "h100-too"]
    kubectl("apply", f"--filename={POOLS}")
    kubectl("delete", NODE_POOLS, "h100-too", "--ignore-not-found")


def test_of_two_last_fallbacks_deleted_at_once_one_stays(
    alice: Kubectl, kubectl: Kubectl, fallbacks: list[str]
) -> None:
    for _ in range(6):
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(lambda name: alice.run("delete", NODE_POOLS, name), fallbacks))
        assert sorted(each.returncode for each in results) == [0, 1]
        (refused,) = (each for each in results if each.returncode)
        assert denied(refused, "is the last on-demand fallback")
        (gone,) = (name for name, each in zip(fallbacks, results, strict=True) if not each.returncode)
        kubectl.apply(node_pool(gone, targetNodes=1))


def test_the_last_fallback_gets_no_owner(alice: Kubectl, kubectl: Kubectl, fallbacks: list[str]) -> None:
    one, two = fallbacks
    kubectl("delete", NODE_POOLS, two)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0d5a1b3e-0000-4000-8000-000000000000"}
    pool = f"{NODE_POOLS}/{one}"
    assert denied(patch(alice, pool, {"ownerReferences": [owner]}), "garbage collector")


def test_only_members_put_break_glass_on_and_only_until_it_ends(
    alice: Kubectl, kubectl: Kubectl, fallbacks: list[str]
) -> None:
    one, two = fallbacks
    kubectl("delete", NODE_POOLS, two)
    pool = f"{NODE_POOLS}/{one}"
    assert denied(patch(alice, pool, {"annotations": {BREAK_GLASS: "I may"}}), "only members of these groups")
    assert patch(kubectl, pool, {"annotations": {BREAK_GLASS: "a drill until 2020-01-01T00:00:00Z"}}).returncode == 0
    ended = kubectl.run("delete", NODE_POOLS, one, "--dry-run=server")
    assert denied(ended, "it ended at 2020-01-01T00:00:00Z")
    assert patch(kubectl, pool, {"annotations": {BREAK_GLASS: "a drill until 2099-01-01T00:00:00Z"}}).returncode == 0
    holds = kubectl.run("delete", NODE_POOLS, one, "--dry-run=server")
    assert holds.returncode == 0
    assert "Warning: [on-demand-fallback]" in holds.stderr
    assert patch(alice, pool, {"annotations": {BREAK_GLASS: None}}).returncode == 0
