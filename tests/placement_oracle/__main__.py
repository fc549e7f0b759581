"""Count right and wrong placements of 700 Pods on 50 clusters: `python -m tests.placement_oracle [--show SEED]`."""

from __future__ import annotations

import argparse
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
    print(f"{CLUSTERS * PODS_EACH - wrong_pods} of {CLUSTERS * PODS_EACH} are right.\n")
    print(f"{'':45}{'all':>5} " + " ".join(f"{flavor:>13}" for flavor in FLAVORS))
    for kind in sorted(seeds, key=lambda kind: -len(seeds[kind])):
        counts = " ".join(f"{by_flavor[kind][flavor]:13}" for flavor in FLAVORS)
        examples = "" if kind == "right" else "   " + " ".join(seeds[kind][:SHOWN])
        print(f"{kind:45}{len(seeds[kind]):5} {counts}{examples}")
    return int(wrong_pods > 0)


def show(seed: str) -> int:
    """Print one case: the machines that matter, the Pod before and after, and the verdict. Return the exit code."""
    number, index = map(int, seed.split("."))
    cluster = cluster_at(number)
    pod = pods_at(number, cluster)[index]
    ((_, wrong),) = judged([pod], cluster)
    if wrong:
        cluster = smallest(pod, cluster, wrong[0].kind)
    ((admitted, wrong),) = judged([pod], cluster)
    print(f"# {cluster.flavor}: potential Nodes")
    for machine in cluster.machines:
        what = {"spot": machine.spot, "up": machine.up, "shown": machine.shown}
        taints = [f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in machine.taints]
        told = {"name": machine.node["metadata"]["name"], **what, "labels": machine.labels, "taints": taints}
        print("# " + yaml.safe_dump(told, sort_keys=False, default_flow_style=True, width=10_000).strip())
    print("---\n# what spotgate sees\n" + yaml.safe_dump_all(cluster.state, sort_keys=False))
    print("---\n# the Pod\n" + yaml.safe_dump(pod, sort_keys=False))
    added = {key: value for key, value in admitted.after["spec"].items() if pod["spec"].get(key) != value}
    keys = ("nodeSelector", "affinity", "tolerations")
    print("---\n# injected\n" + yaml.safe_dump({k: v for k, v in added.items() if k in keys}, sort_keys=False))
    print("\n".join(("# findings: " + " ".join(admitted.findings), *(f"# WRONG: {one}" for one in wrong))))
    return int(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", metavar="SEED", help="print one case, such as 12.3, with as few pools as possible")
    arguments = parser.parse_args()
    sys.exit(show(arguments.show) if arguments.show else report())
