"""Cases by seed, and their judgement: a seed is `CLUSTER.POD`, such as `12.3`."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.placement_oracle.admission import Admitted, admit
from tests.placement_oracle.clusters import FLAVORS, Cluster, cluster_of
from tests.placement_oracle.judge import Judge, Wrong
from tests.placement_oracle.pods import pod_of

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]

CLUSTERS, PODS_EACH = 50, 14


def cluster_at(number: int) -> Cluster:
    """Return the cluster with this number; each flavor comes in turn."""
    return cluster_of(Random(number), FLAVORS[number % len(FLAVORS)])  # noqa: S311 - a seed, no secret


def pods_at(number: int, cluster: Cluster) -> list[JSON]:
    """Return the Pods of the cluster with this number."""
    return [pod_of(Random(f"{number}.{index}"), cluster) for index in range(PODS_EACH)]  # noqa: S311


def judged(pods: list[JSON], cluster: Cluster) -> Iterator[tuple[Admitted, list[Wrong]]]:
    """Yield spotgate's answer for each Pod, and what is wrong with it."""
    for pod, admitted in zip(pods, admit(pods, cluster.state), strict=True):
        yield admitted, Judge(pod, cluster).judge(admitted.after, admitted.findings)


def smallest(pod: JSON, cluster: Cluster, kind: str) -> Cluster:
    """Return the cluster without the pools that this kind of wrong answer doesn't need."""
    for pool in cluster.pools[1:]:
        smaller = cluster.without(pool)
        ((_, wrong),) = judged([pod], smaller)
        if kind in {one.kind for one in wrong}:
            cluster = smaller
    return cluster
