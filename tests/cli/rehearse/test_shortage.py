"""What Pods that stay pending lack, in the words of a reader."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from webhook.kube.pod import PodSpec
from webhook.rehearse.inputs.nodes import RehearsedNode
from webhook.rehearse.runs.shortage import causes_of, shortage_of


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
    ("sentence", "causes"),
    [
        (
            "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/3: 1 Insufficient b.",
            ("Insufficient cpu",),
        ),
        # Kubernetes 1.35.
        (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1.",
            ("Insufficient cpu",),
        ),
        ("0/9 nodes are available: 9 node(s) didn't match pod anti-affinity.", ("didn't match pod anti-affinity",)),
        ("0/1 nodes are available: 1 node(s) were unschedulable.", ()),
        ("no nodes available to schedule pods", ()),
    ],
)
def test_the_causes_of_a_sentence_leave_out_numbers_and_cordoned_nodes(sentence: str, causes: tuple[str, ...]) -> None:
    assert causes_of(sentence) == causes


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
