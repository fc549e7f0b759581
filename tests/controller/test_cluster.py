"""What the controller knows of Nodes: one that may be spot never counts as on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.objects import cks_pool, view_of
from webhook.controller.run import Cluster
from webhook.engine.bundle import load_bundle
from webhook.rules.context import NOTHING_KNOWN

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api

POOL = "compute.coreweave.com/node-pool"
POOLS = view_of(cks_pool("cpu-spot", gpu=False), cks_pool("cpu", spot=False, gpu=False))


class _State:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def view(self) -> ClusterView:
        return self._view


@pytest.mark.parametrize(
    ("view", "node", "expected"),
    [
        (POOLS, "of-cpu", True),
        (POOLS, "of-spot", False),
        (POOLS, "without-labels", True),
        (POOLS, "gone", False),
        (NOTHING_KNOWN, "of-cpu", False),
        (NOTHING_KNOWN, "of-spot", False),
    ],
)
def test_a_node_is_on_demand_only_if_it_and_the_pools_are_known(view: ClusterView, node: str, expected: bool) -> None:  # noqa: FBT001
    cluster = Cluster(cast("Api", None), load_bundle(), lambda: None)
    cluster.state = _State(view)  # type: ignore[assignment]
    cluster.nodes.items = {
        ("", "of-cpu"): {POOL: "cpu"},
        ("", "of-spot"): {POOL: "cpu-spot"},
        ("", "without-labels"): {},
    }
    assert cluster.is_on_demand(node) is expected
