"""`spotgate check --kubeconfig` says of an object what the webhook says when it is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.checking import check
from tests.controlplane.kubectl import as_list
from tests.controlplane.live import admin
from tests.objects import deployment, node_pool, pod, saying

if TYPE_CHECKING:
    from tests.controlplane.cluster import Cluster

RESERVED = {"foo.coreweave.cloud/bar": "x"}
SPOT = {"spotgate.dev/capacity": "spot"}


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("thing", "denied"),
    [
        (saying(pod("web"), RESERVED), True),
        (saying(deployment("web", 1), RESERVED), True),
        (saying(deployment("web", 1, gpus=8), SPOT), False),
        (node_pool("another-spot", computeClass="spot"), False),
        (node_pool("superchip", computeClass="spot", instanceType="gb200-4x"), True),
    ],
    ids=["a Pod", "a Deployment", "a Deployment that asks for spot", "a spot pool", "a spot pool of superchips"],
)
def test_both_deny_for_the_same_reason_or_neither(cluster: Cluster, thing: dict[str, Any], denied: bool) -> None:  # noqa: FBT001
    checked = check(admin(cluster), thing)
    assert checked.code == int(denied)
    applied = cluster.kubectl.run("apply", "--dry-run=server", "--filename=-", documents=as_list(thing))
    assert applied.returncode == int(denied)
    assert all(reason in applied.stderr for reason in checked.reasons())
