"""Cases by seed, and their judgment: a seed is `CLUSTER.POD`, such as `12.3`."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.placement_oracle.admission import Admitted, admit
from tests.placement_oracle.clusters import FLAVORS, Cluster, cluster_of
from tests.placement_oracle.judge import Judge, Wrong
from tests.placement_oracle.pods import pod_of

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]

CLUSTERS: Final = 50
PODS_EACH: Final = 14


def cluster_at(number: int) -> Cluster:
    """Return the cluster with this number; each flavor comes in turn."""
    return cluster_of(Random(number), FLAVORS[number % len(FLAVORS)])  # noqa: S311 - a seed, no secret


def pods_at(number: int, cluster: Cluster) -> list[JSON]:
    """Return the Pods of the cluster with this number."""
    return [pod_of(Random(f"{number}.{index}"), cluster) for index in range(PODS_EACH)]  # noqa: S311


def judged(pods: list[JSON], cluster: Cluster) -> Iterator[tuple[Admitted, list[Wrong]]]:
    """Yield spotgate's answer for each Pod, and what is wrong with it."""
    for admitted in admit(pods, cluster.state):
        judge = Judge(admitted.before, cluster)
        nodes = {machine.name for machine in cluster.machines if judge.can_run(admitted.after, machine)}
        yield admitted, judge.judge(admitted.after, admitted.findings, nodes)


def described(pod: JSON, cluster: Cluster) -> str:
    """Return a case as YAML, with only the pools that the first wrong answer needs."""
    ((_, wrong),) = judged([pod], cluster)
    for pool in cluster.pools[1:] if wrong else ():
        smaller = replace(cluster, pools=tuple(other for other in cluster.pools if other is not pool))
        ((_, still),) = judged([pod], smaller)
        cluster = smaller if wrong[0].kind in {one.kind for one in still} else cluster
    ((admitted, wrong),) = judged([pod], cluster)
    lines = [f"# Potential Nodes of {cluster.flavor}:"]
    for machine in cluster.machines:
        what = f"{'spot' if machine.spot else 'on-demand'}, {'up' if machine.up else 'at zero'}"
        node = {"labels": machine.labels, "taints": machine.taints, **machine.node["status"]["allocatable"]}
        lines.append(f"# - {machine.name} ({what}): {json.dumps(node)}")
    claims = {claim["resourceClaimTemplateName"] for claim in pod["spec"].get("resourceClaims", ())}
    seen = [o for o in cluster.state if o["kind"] != "ResourceClaimTemplate" or o["metadata"]["name"] in claims]
    given, spec = admitted.before["spec"], admitted.after["spec"]
    added = {key: value for key, value in spec.items() if given.get(key) != value and key != "containers"}
    lines += [_yaml("What spotgate sees", *seen), _yaml("The Pod", pod), _yaml("Changed in the Pod's spec", added)]
    return "\n".join((*lines, f"# Findings: {list(admitted.findings)}", *(f"# WRONG: {one}" for one in wrong)))


def _yaml(title: str, *documents: JSON) -> str:
    plain = json.loads(json.dumps(documents))  # without aliases
    return f"---\n# {title}\n{yaml.safe_dump_all(plain, sort_keys=False)}"
