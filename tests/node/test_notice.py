"""A reclaim notice on a kubelet: the file, SIGTERM at the notice, and a grace period that the later drain doesn't shorten."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.harness.api import accepted
from tests.controlplane.harness.forked import ForkedSpotgate
from tests.controlplane.harness.webhook import SPOTGATE
from tests.node.node import PODS, Node
from tests.node.test_stop import EARLY, LATE, LONG, app, states

if TYPE_CHECKING:
    from collections.abc import Iterator

RECLAIM_AT = "spotgate.dev/reclaim-at"
FILE = "/var/run/spotgate/reclaim-at"
REMOVAL, MARGIN = 50, 30
"""Seconds from the notice to the removal, and the margin of a Node without a provider."""
GRACE, DRAIN = 6, 5
"""The Pod's own grace period, and seconds from the notice to the provider's drain."""
WAIT_FOR_FILE = (
    f'until [ -s {FILE} ]; do sleep 0.1; done; read now _ </proc/uptime; echo "$now told" >>/log/told; exec sleep 99'
)


@pytest.fixture
def controller(node: Node, tmp_path: Path) -> Iterator[ForkedSpotgate]:
    """Run the controller as the administrator."""
    kubeconfig = node.api.cluster.credentials.kubeconfig("admin")
    flags = ("--duties=notice", f"--kubeconfig={kubeconfig}", "--namespace=default", "--ops=127.0.0.1:0")
    process = ForkedSpotgate("controller", (str(SPOTGATE), "controller", *flags), tmp_path / "controller.log")
    process.start()
    try:
        node.api.wait(lambda: '"leading"' in process.log.read_text(), "the controller leads")
        yield process
    finally:
        process.kill()


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def logged(node: Node, name: str) -> dict[str, float]:
    """Return the last time of each event in the log of a container."""
    file = node.log / name
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return {event: float(time) for time, event in lines}


@pytest.mark.usefixtures("controller")
def test_a_pod_learns_the_time_and_can_use_all_of_it(node: Node) -> None:
    common = {"restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE}
    telling = {"name": "telling", "command": ["sh", "-c", WAIT_FOR_FILE]}
    node.run("informed", {**common, "containers": [telling]}, "inform")
    node.run("extended", {**common, "containers": [app("extended", LONG)]}, "evict")
    node.api.wait(lambda: "started" in logged(node, "extended"), "the app runs")
    node.api.wait(lambda: node.pods()["informed"]["status"]["phase"] == "Running", "the other Pod runs")
    time.sleep(1)  # a Pod that is created in the second of the notice isn't evicted: it may have come back

    began, removal = uptime(), datetime.now(UTC) + timedelta(seconds=REMOVAL)
    notice = {RECLAIM_AT: removal.strftime("%Y-%m-%dT%H:%M:%SZ")}
    accepted(node.api.patch("/api/v1/nodes/node", {"metadata": {"annotations": notice}}))
    try:
        time.sleep(DRAIN)
        drain = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "extended"}}
        accepted(node.api.create(f"{PODS}/extended/eviction", drain))
        node.api.wait(lambda: node.pods()["extended"]["status"]["phase"] == "Failed", "the app has ended")
    finally:
        accepted(node.api.patch("/api/v1/nodes/node", {"metadata": {"annotations": {RECLAIM_AT: None}}}))
        node.api.delete(f"{PODS}/informed")
        node.api.wait(lambda: not states(node.pods(), "running"), "no container runs")

    extended, end = logged(node, "extended"), began + REMOVAL - MARGIN
    assert logged(node, "told")["told"] - began < 2
    assert extended["SIGTERM"] - began < LATE
    assert end - EARLY - 1 <= extended["runs"] <= end + LATE  # whole seconds are rounded down
    assert extended["runs"] - extended["SIGTERM"] > GRACE + DRAIN
