"""What Pods that stay pending lack, in the words of a reader."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from webhook.kube.pod import PodSpec
from webhook.rehearse.inputs.nodes import RehearsedNode
from webhook.rehearse.runs.shortage import shortage_of


def node(name: str, pool: str, taint: str = "", **allocatable: str) -> RehearsedNode:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    value = {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110", **allocatable}},
    }
    return RehearsedNode(value, pool, None, None, spot=False)


NODES = [node("a-0", "a"), node("a-1", "a"), node("b-0", "b"), node("t-0", "tainted", "team", cpu="64")]


@pytest.mark.parametrize(
    ("spec", "needed", "said"),
    [
        ({"nodeSelector": {"pool": "a"}}, {"cpu": 9}, "a has 2 CPUs too few"),
        ({}, {"cpu": 12}, "a and b have 1 CPU too few"),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, {"cpu": 80}, "3 pools have 5 CPUs too few"),
        ({"nodeSelector": {"pool": "b"}}, {"memory": 6 * 2**30}, "b has 2 GiB of memory too few"),
        ({"nodeSelector": {"pool": "b"}}, {"nvidia.com/gpu": 8}, "b has 8 nvidia.com/gpu too few"),
        pytest.param({"nodeSelector": {"pool": "a"}}, {"cpu": 3}, "", id="enough, but not on one node"),
        pytest.param({"nodeSelector": {"pool": "c"}}, {"cpu": 1}, "", id="no node admits them"),
    ],
)
def test_a_shortage_names_pools_and_how_much_they_lack(
    spec: dict[str, object], needed: dict[str, float], said: str
) -> None:
    requested = {"a-0": Counter({"cpu": 1}), "b-0": Counter({"cpu": 0})}
    assert shortage_of(msgspec.convert(spec, PodSpec), needed, NODES, requested) == said
