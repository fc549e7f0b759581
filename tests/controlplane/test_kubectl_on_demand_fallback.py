"""Break-glass for the last on-demand fallback, as somebody with kubectl meets it, and the audit log has it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.controlplane.kubectl import as_warnings
from tests.controlplane.populate import POOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.cluster import Cluster
    from tests.controlplane.kubectl import Kubectl, Result
    from tests.controlplane.webhook import Webhook

KIND = "nodepools.compute.coreweave.com"
DENIED = 'admission webhook "node-pools.spotgate.dev" denied the request: [on-demand-fallback] '


@pytest.fixture
def alice(alice: Kubectl) -> Kubectl:
    """She is told what this policy says; others have something to say of the same objects."""
    return replace(alice, policy="on-demand-fallback")


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


def refused(result: Result) -> str:
    """Why: what kubectl printed after the part that is the same for every denial."""
    prefix, denied, text = result.stderr.partition(DENIED)
    assert (result.returncode, result.stdout) == (1, "")
    assert denied
    assert prefix in ("Error from server (Forbidden): ", 'Error from server (Forbidden): error when creating "STDIN": ')
    return text


LAST = "NodePool h100 is the last on-demand fallback of GPU spot pool NodePool h100-spot"
ID = " [on-demand-fallback/last-fallback]"


BROKEN = f"""\
[on-demand-fallback] {LAST}
   {ID}
  Left without: NodePool h100-spot. These pools don't count: NodePool cpu-control-plane: it has no GPUs. Not denied:
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
