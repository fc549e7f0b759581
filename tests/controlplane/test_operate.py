"""docs/operate.md: each of its commands works where the page says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.cluster import Cluster, start_cluster
from tests.controlplane.pages import Terminal, commands, sections
from tests.controlplane.populate import populate
from tests.controlplane.webhook import Webhook, install_webhook, render_configurations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = sections("operate.md")

CALLS = {
    "apiserver_admission_webhook_rejection_count": r'(?=.*error_type="calling_webhook_error")',
    "apiserver_admission_webhook_fail_open_count": "",
    "apiserver_admission_webhook_admission_duration_seconds_bucket": r'(?=.*le="1")',
    "apiserver_admission_webhook_admission_duration_seconds_count": "",
}
"""What the alerts and the board ask of the API server's metrics, and labels."""


@pytest.fixture(scope="module")
def own(binaries: dict[str, Path]) -> Iterator[Cluster]:
    with start_cluster(binaries) as running:
        populate(running.kubectl)
        yield running


@pytest.fixture(scope="module")
def spotgate(own: Cluster) -> Iterator[Webhook]:
    with install_webhook(own) as installed:
        yield installed


def test_the_commands_of_the_page_work_in_the_emergencies_that_they_are_for(spotgate: Webhook) -> None:
    kubectl = spotgate.cluster.kubectl
    terminal = Terminal(kubectl, spotgate.directory)
    refused = kubectl.run("delete", "nodepools.compute.coreweave.com", "h100", "--dry-run=server")
    assert "[on-demand-fallback]" in refused.stderr
    terminal.run(*commands(PAGE["An emergency change while spotgate runs"]))
    spotgate.stop()
    terminal.run(*commands(PAGE["Cold start"]))
    refused = kubectl.run("delete", "nodepools.compute.coreweave.com", "h100-spot")
    assert "failed calling webhook" in refused.stderr
    kubectl("run", "unjudged", "--image=example.com/image", "--dry-run=server")
    counted = kubectl("get", "--raw", "/metrics")
    for metric, labels in CALLS.items():
        assert re.search(rf'^{metric}{{(?=.*name="[a-z-]+\.spotgate\.dev"){labels}', counted, re.MULTILINE), metric
    rendered = render_configurations(spotgate.directory / "policies", spotgate.port)
    overlay = spotgate.directory / "manifests" / "overlays" / "my-cluster"
    overlay.mkdir(parents=True)
    (overlay / "kustomization.yaml").write_text("resources: [webhooks.yaml]\n")
    (overlay / "webhooks.yaml").write_text(rendered)
    terminal.run(*commands(PAGE["An emergency change while spotgate is down"]))
