"""Count right and wrong placements of random Pods, by default of 700 Pods on 50 clusters.

python -m tests.placement_oracle [--clusters 1200 | --show SEED]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict

from tests.placement_oracle.cases import CLUSTERS, PODS_EACH, cluster_at, described, judged, pods_at
from tests.placement_oracle.clusters import FLAVORS

EXAMPLES = 3
"""Seeds of each kind of wrong answer."""


def report(clusters: int) -> str:
    """Return a table of the kinds of wrong answers by flavor of cluster, with seeds. A Pod may have several kinds."""
    seeds: dict[str, list[str]] = defaultdict(list)
    flavors: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(clusters):
        cluster = cluster_at(number)
        for index, (_, wrong) in enumerate(judged(pods_at(number, cluster), cluster)):
            for kind in {one.kind for one in wrong} or {"right"}:
                seeds[kind].append(f"{number}.{index}")
                flavors[kind][cluster.flavor] += 1
    lines = [f"{len(seeds['right'])} of {clusters * PODS_EACH} are right.", ""]
    lines.append(f"{'':60}{'all':>5}" + "".join(f"{flavor:>15}" for flavor in FLAVORS))
    for kind in sorted(seeds, key=lambda kind: -len(seeds[kind])):
        counts = "".join(f"{flavors[kind][flavor]:15}" for flavor in FLAVORS)
        examples = "" if kind == "right" else "   " + " ".join(seeds[kind][:EXAMPLES])
        lines.append(f"{kind:60}{len(seeds[kind]):5}{counts}{examples}")
    return "\n".join(lines)


def show(seed: str) -> str:
    """Return one case as YAML."""
    number, index = map(int, seed.split("."))
    cluster = cluster_at(number)
    return described(pods_at(number, cluster)[index], cluster)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", metavar="N", type=int, default=CLUSTERS, help="the number of clusters")
    parser.add_argument("--show", metavar="SEED", help="print one case, such as 12.3, with as few pools as possible")
    arguments = parser.parse_args()
    sys.stdout.write(f"{show(arguments.show) if arguments.show else report(arguments.clusters)}\n")
