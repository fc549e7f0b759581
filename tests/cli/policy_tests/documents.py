"""Shared policies, objects, and PolicyTests for the tests of ``spotgate test``."""

from __future__ import annotations

from typing import Any

import yaml

from tests.builders import node_pool

POLICY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec:
  domains: [example.com]
  exempt:
    - {groups: [platform], reason: they own it}
    - {users: [ci], reason: it is a robot}
"""
OTHERS = """\
apiVersion: spotgate.dev/v1
kind: OnDemandFallback
metadata: {name: fallback}
spec: {breakGlass: {groups: [admins]}}
---
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: graceful-termination}
---
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: spot-placement}
---
apiVersion: spotgate.dev/v1
kind: EvictionStrategy
metadata: {name: eviction}
spec: {enforcement: "off"}
"""
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"team": "a"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
ON_SPOT = {"metadata": {"name": "web", "labels": {"spotgate.dev/capacity": "spot"}}}
RESERVED = {"metadata": {"name": "web", "labels": {"example.com/x": "b"}}}
SPOT_POOL = node_pool("gpu-spot", computeClass="spot")
CPU_SPOT_POOL = node_pool("gpu-spot", computeClass="spot", instanceType="turin-gp")
ON_DEMAND_POOL = node_pool("gpu", computeClass="default")


def policy_test(*cases: dict[str, Any], **shared: Any) -> str:
    """Return a PolicyTest; number the cases without a name."""
    named = [{"name": f"case {number}", **case} for number, case in enumerate(cases)]
    spec = {"object": POD, **shared, "cases": named}
    document = {"apiVersion": "spotgate.dev/v1", "kind": "PolicyTest", "metadata": {"name": "mine"}, "spec": spec}
    return yaml.safe_dump(document, sort_keys=False)


def expecting(outcome: str, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, **more}
