"""Count right and wrong placements of 700 Pods on 50 clusters: `python -m tests.placement_oracle [--show SEED]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict

import yaml

from tests.placement_oracle.cases import CLUSTERS, PODS_EACH, cluster_at, judged, pods_at, smallest
from tests.placement_oracle.clusters import FLAVORS

SHOWN = 3


def report() -> int:
    """Print a table of the kinds of wrong answers, with reproductions. Return the exit code."""
    seeds: dict[str, list[str]] = defaultdict(list)
    by_flavor: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    wrong_pods = 0
    for number in range(CLUSTERS):
        cluster = cluster_at(number)
        for index, (_, wrong) in enumerate(judged(pods_at(number, cluster), cluster)):
            wrong_pods += bool(wrong)
            for kind in {one.kind for one in wrong} or {"right"}:
                seeds[kind].append(f"{number}.{index}")
                by_flavor[kind][cluster.flavor] += 1
    print(f"{CLUSTERS * PODS_EACH - wrong_pods} of {CLUSTERS * PODS_EACH} are right.\n")  # noqa: T201
    print(f"{'':45}{'all':>5} " + " ".join(f"{flavor:>13}" for flavor in FLAVORS))  # noqa: T201
    for kind in sorted(seeds, key=lambda kind: -len(seeds[kind])):
        counts = " ".join(f"{by_flavor[kind][flavor]:13}" for flavor in FLAVORS)
        examples = "" if kind == "right" else "   " + " ".join(seeds[kind][:SHOWN])
        print(f"{kind:45}{len(seeds[kind]):5} {counts}{examples}")  # noqa: T201
    return int(wrong_pods > 0)


def show(seed: str) -> int:
    """Print one case: the potential Nodes, what spotgate sees, the Pod, and the answer. Return the exit code."""
    number, index = map(int, seed.split("."))
    cluster = cluster_at(number)
    pod = pods_at(number, cluster)[index]
    ((_, wrong),) = judged([pod], cluster)
    if wrong:
        cluster = smallest(pod, cluster, wrong[0].kind)
    ((admitted, wrong),) = judged([pod], cluster)
    print(f"# Potential Nodes of {cluster.flavor}:")  # noqa: T201
    for machine in cluster.machines:
        what = f"{'spot' if machine.spot else 'on-demand'}, {'up' if machine.up else 'at zero'}"
        truth = {
            "labels": machine.labels,
            "taints": machine.taints,
            "allocatable": machine.node["status"]["allocatable"],
        }
        print(f"# {machine.node['metadata']['name']}: {what}; {truth}")  # noqa: T201
    claims = {claim["resourceClaimTemplateName"] for claim in pod["spec"].get("resourceClaims", ())}
    kept = [o for o in cluster.state if o["kind"] != "ResourceClaimTemplate" or o["metadata"]["name"] in claims]
    given, spec = admitted.before["spec"], admitted.after["spec"]
    added = {key: value for key, value in spec.items() if given.get(key) != value}
    _print("What spotgate sees", *kept)
    _print("The Pod", pod)
    _print("The Pod's fields that admission changed", added)
    print("\n".join((f"# findings: {' '.join(admitted.findings)}", *(f"# WRONG: {one}" for one in wrong))))  # noqa: T201
    return int(bool(wrong))


def _print(title: str, *documents: object) -> None:
    plain = json.loads(json.dumps(documents))  # without aliases
    print(f"---\n# {title}\n{yaml.safe_dump_all(plain, sort_keys=False)}", end="")  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", metavar="SEED", help="print one case, such as 12.3, with as few pools as possible")
    arguments = parser.parse_args()
    sys.exit(show(arguments.show) if arguments.show else report())
