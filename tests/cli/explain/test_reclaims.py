"""Which Pods have a timeline: those that a policy in force takes for Pods on spot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import SPOT_POOL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run

TOLERATING = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: team-a}
spec:
  tolerations: [{key: example.com/spot, operator: Exists}]
  containers: [{name: main, image: busybox}]
"""
POLICY = """\
apiVersion: spotgate.dev/v1
kind: %s
metadata: {name: own}
spec: {enforcement: %s, toleratingIsTargeting: true}
"""
TARGETS = "no timeline: it targets spot (it tolerates the spot taint example.com/spot:NoSchedule)"
NOT = "no timeline: nothing says that it targets spot"


@pytest.mark.parametrize(
    ("kind", "enforcement", "says"),
    [
        ("SpotPlacement", "deny", TARGETS),
        ("GracefulTermination", "deny", TARGETS),
        ("SpotSuitability", "warn", TARGETS),
        ("SpotPlacement", "off", NOT),
    ],
)
def test_a_pod_that_tolerates_spot_is_on_spot_where_a_policy_in_force_says_so(
    run: Run, write: Callable[[str, str], Path], kind: str, enforcement: str, says: str
) -> None:
    write("state.yaml", f"{SPOT_POOL}  nodeTaints: [{{key: example.com/spot, effect: NoSchedule}}]\n")
    write("pod.yaml", TOLERATING)
    policies = write("policies/own.yaml", POLICY % (kind, enforcement))
    done = run("explain", "pod.yaml", "--state", "state.yaml", "--policies", policies)
    assert says in done.out.replace("\n", " ")
