"""SpotPlacement: a bound on the terms of a Pod's affinity."""

from __future__ import annotations

from tests.objects import ALL, EKS, KARPENTER, expression, other_pool, view_of
from tests.rules.placement import (
    PREFERRED,
    SPOT,
    changes,
    pod_of,
    required,
    said,
)


def test_terms_that_would_multiply_beyond_reason_are_said_and_nothing_is_injected() -> None:
    pools = (other_pool(KARPENTER, "k"), other_pool(EKS, "e"))
    terms = [[expression("topology.kubernetes.io/zone", "In", f"z{number}")] for number in range(33)]
    violation = said(pod_of(labels=SPOT, affinity=required(*terms)), view_of(*pools), providers=ALL)

    assert violation.id == "too-many-terms"
    assert "the 33 terms of its own affinity are too many" in violation.reason
    assert "at most 32 can" in violation.detail
    assert len(changes(pod_of(labels=SPOT, affinity=required(*terms[1:])), *pools, providers=ALL)["affinity"]) == 1
    assert changes(pod_of(labels=PREFERRED, affinity=required(*terms)), *pools, providers=ALL)
