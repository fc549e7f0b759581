"""spotgate places random Pods on random clusters as the judge says: see `judge`."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from tests.placement_oracle.cases import CLUSTERS, cluster_at, described, judged, pods_at
from tests.placement_oracle.clusters import FLAVORS, cluster_of
from tests.placement_oracle.pods import pod_of


@pytest.mark.parametrize("flavor", FLAVORS)
@settings(max_examples=150, phases=(Phase.generate,))  # a smaller seed is no simpler case; `described` simplifies it
@given(st.integers(min_value=0, max_value=2**64))
def test_a_pod_can_run_on_the_nodes_that_should_run_it_and_on_no_other(flavor: str, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    cluster = cluster_of(random, flavor)
    pod = pod_of(random, cluster)
    ((_, wrong),) = judged([pod], cluster)
    if wrong:
        note(described(pod, cluster))
    assert list(map(str, wrong)) == []


def test_all_placements_of_the_report_are_right() -> None:
    """For a case, see `python -m tests.placement_oracle --show SEED`."""
    mistakes: dict[str, list[str]] = {}
    for number in range(CLUSTERS):
        cluster = cluster_at(number)
        for index, (_, wrong) in enumerate(judged(pods_at(number, cluster), cluster)):
            mistakes |= {f"{number}.{index}": list(map(str, wrong))} if wrong else {}
    assert mistakes == {}
