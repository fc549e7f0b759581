"""On-demand fallback, as somebody with kubectl meets it: GPU spot pools and what stands in for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.controlplane.kubectl import as_list, as_warnings
from tests.controlplane.populate import POOLS
from tests.objects import node_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.cluster import Cluster
    from tests.controlplane.kubectl import Kubectl, Result
    from tests.controlplane.webhook import Webhook

KIND = "nodepools.compute.coreweave.com"
DENIED = 'admission webhook "node-pools.spotgate.dev" denied the request: [on-demand-fallback] '


SPOT = node_pool("train-spot", computeClass="spot")


@pytest.fixture
def alice(alice: Kubectl) -> Kubectl:
    """She is told what this policy says; others have something to say of the same objects."""
    return replace(alice, policy="on-demand-fallback")


def example(name: str) -> str:
    return f"""\
create {{}} on-demand pool first, for example:
    apiVersion: compute.coreweave.com/v1alpha1
    kind: NodePool
    metadata:
      name: {name}-fallback
    spec:
      computeClass: default
      instanceType: gd-8xh100ib-i128
      autoscaling: true
      maxNodes: 2
      targetNodes: 0
"""


@pytest.fixture(autouse=True)
def pools(kubectl: Kubectl, webhook: Webhook) -> Iterator[None]:
    """Put the pools of pools.yaml back before a test, whatever the one before it did."""
    before = versions(kubectl)
    yield
    if versions(kubectl) == before:
        return
    kubectl.run("delete", KIND, "--all")  # all but the last fallback
    kubectl("delete", KIND, "--all")
    kubectl.apply(*yaml.safe_load_all(POOLS.read_text()))
    for name in ("cpu-spot", "h100-spot"):
        webhook.wait_for_pool(name)


def versions(kubectl: Kubectl) -> dict[str, str]:
    """Return what tells whether a pool was changed."""
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in kubectl.get(KIND)["items"]}


@pytest.fixture
def new_cluster(kubectl: Kubectl) -> None:
    """Leave only the node pool that every CKS cluster has."""
    for name in ("h100-spot", "cpu-spot", "h100"):
        kubectl("delete", KIND, name)


def refused(result: Result) -> str:
    """Why: what kubectl printed after the part that is the same for every denial."""
    prefix, denied, text = result.stderr.partition(DENIED)
    assert (result.returncode, result.stdout) == (1, "")
    assert denied
    assert prefix in ("Error from server (Forbidden): ", 'Error from server (Forbidden): error when creating "STDIN": ')
    return text


# Creating

UNCOVERED = (
    "GPU spot pool NodePool train-spot has no on-demand fallback (at spec.computeClass) [on-demand-fallback/missing]\n"
    "  When CoreWeave CKS reclaims its nodes, Pods stay pending unless another pool takes them. The policy wants an "
    "on-demand pool with GPUs, and there is none that can be used. What does not count: NodePool cpu-control-plane: it has "
    "no GPUs.\n"
    f"  Fix: {example('train-spot').format('an')}"
)


@pytest.mark.usefixtures("new_cluster")
def test_a_gpu_spot_pool_without_fallback_is_denied_however_it_is_created(alice: Kubectl) -> None:
    for command in ("create", "create --dry-run=server", "apply", "apply --dry-run=server", "apply --server-side"):
        result = alice.run(*command.split(), "--filename=-", documents=as_list(SPOT))
        assert refused(result) == UNCOVERED, command
    assert alice("get", KIND, "--output=name") == "nodepool.compute.coreweave.com/cpu-control-plane\n"


@pytest.mark.usefixtures("new_cluster")
def test_the_pool_that_the_denial_shows_is_a_fallback(alice: Kubectl) -> None:
    denial = alice.run("apply", "--filename=-", documents=as_list(SPOT)).stderr
    alice("apply", "--filename=-", documents=denial.partition("for example:\n")[2])
    alice.apply(SPOT)
    assert alice.get(KIND, "train-spot")["spec"] == SPOT["spec"]


# Taking the last fallback away

LAST = "NodePool h100 is the last on-demand fallback of GPU spot pool NodePool h100-spot"
ID = " [on-demand-fallback/last-fallback]"
LEFT = "  Left without: NodePool h100-spot. What does not count: NodePool cpu-control-plane: it has no GPUs"
EMPTY = "; NodePool h100: it has 0 nodes and no autoscaling"
AUTOSCALE = "turn on spec.autoscaling, with spec.maxNodes above 0, to run it at 0 nodes, or "
OTHERWISE = f"delete the spot pools first, or {example('h100-spot').format('another')}"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (f"delete {KIND} h100", f"{LAST}{ID}\n{LEFT}.\n  Fix: {OTHERWISE}"),
        (
            f"scale {KIND}/h100 --replicas=0",
            f"{LAST} (at spec.replicas){ID}\n{LEFT}{EMPTY}.\n  Fix: {AUTOSCALE}{OTHERWISE}",
        ),
        (
            f'patch {KIND} h100 --type=merge --patch={{"spec":{{"targetNodes":0}}}}',
            f"{LAST} (at spec.targetNodes){ID}\n{LEFT}{EMPTY}.\n  Fix: {AUTOSCALE}{OTHERWISE}",
        ),
    ],
    ids=["delete", "scale", "patch"],
)
def test_the_last_fallback_can_not_be_taken_away(command: str, text: str, alice: Kubectl) -> None:
    before = alice.get(KIND, "h100")
    assert refused(alice.run(*command.split())) == text
    assert alice.get(KIND, "h100") == before


def test_spot_first_everything_can_go_without_a_word(alice: Kubectl) -> None:
    for command in (f"scale {KIND}/h100-spot --replicas=0", f"delete {KIND} h100-spot", f"delete {KIND} h100"):
        result = alice.run(*command.split())
        assert (result.returncode, result.stderr) == (0, ""), command


def test_deleting_all_pools_takes_a_second_run(alice: Kubectl) -> None:
    first = alice.run("delete", KIND, "--all")
    assert first.returncode == 1
    assert LAST in first.stderr
    second = alice.run("delete", KIND, "--all")
    assert (second.returncode, second.stdout) == (0, 'nodepool.compute.coreweave.com "h100" deleted\n')


# Break-glass

BROKEN = f"""\
[on-demand-fallback] {LAST}
   {ID}
  Left without: NodePool h100-spot. What does not count: NodePool cpu-control-plane: it has no GPUs. Not denied:
    break-glass by erin: incident 42.
  Fix: delete the spot pools first, or create another on-demand pool first, for example: \
{{apiVersion: compute.coreweave.com/v1alpha1, kind: NodePool, metadata: {{name: h100-spot-fallback}}, \
spec: {{computeClass: default, instanceType: gd-8xh100ib-i128, autoscaling: true, maxNodes: 2, targetNodes: 0}}}}"""


def test_break_glass_is_for_the_groups_of_the_policy_and_always_in_the_audit_log(
    cluster: Cluster, alice: Kubectl
) -> None:
    annotate = ("annotate", KIND, "h100", "spotgate.dev/break-glass=incident 42")
    denied = replace(alice, policy="").run(*annotate)
    assert denied.returncode == 1
    assert "[object/break-glass-forbidden]" in denied.stderr
    alice(*annotate, "--as=erin", "--as-group=system:masters")
    seen = len(cluster.audit_events())
    assert refused(alice.run("delete", KIND, "h100")).startswith(LAST)
    deleted = alice.run("delete", KIND, "h100", "--as=erin", "--as-group=system:masters")
    assert (deleted.returncode, deleted.stdout) == (0, 'nodepool.compute.coreweave.com "h100" deleted\n')
    assert deleted.stderr == as_warnings(BROKEN)
    events = [each for each in cluster.audit_events()[seen:] if each["verb"] == "delete"]
    told = [
        {key: text for key, text in each["annotations"].items() if key.startswith("node-pools.spotgate.dev/")}
        for each in events
    ]
    assert told == [
        {
            "node-pools.spotgate.dev/on-demand-fallback": f"deny on-demand-fallback/last-fallback: {LAST}",
            "node-pools.spotgate.dev/break-glass-refused": "alice: incident 42",
        },
        {
            "node-pools.spotgate.dev/on-demand-fallback": f"warn on-demand-fallback/last-fallback: {LAST}",
            "node-pools.spotgate.dev/break-glass": "erin: incident 42",
        },
    ]
