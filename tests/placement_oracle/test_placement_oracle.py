"""spotgate places random Pods on random clusters as the judge says: see `judge`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.placement_oracle.cases import judged
from tests.placement_oracle.clusters import FLAVORS, cluster_of
from tests.placement_oracle.pods import pod_of

if TYPE_CHECKING:
    from random import Random


@pytest.mark.parametrize("flavor", FLAVORS)
@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_a_pod_can_run_on_the_nodes_that_should_run_it_and_on_no_other(flavor: str, random: Random) -> None:
    cluster = cluster_of(random, flavor)
    pod = pod_of(random, cluster)
    ((admitted, wrong),) = judged([pod], cluster)
    note(f"{cluster.machines}\n{pod}\n{admitted.after['spec']}\n{admitted.findings}")
    assert list(map(str, wrong)) == []
