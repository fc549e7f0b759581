"""A cluster with spotgate and two candidates for this folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.floor.harness import Controllers, controllers, floored, gates, make_room
from tests.controlplane.harness.cluster import start_cluster
from tests.controlplane.harness.populate import populate
from tests.controlplane.harness.relay import Relay
from tests.controlplane.harness.webhook import install_webhook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook


@pytest.fixture(scope="session")
def webhook(binaries: dict[str, Path]) -> Iterator[Webhook]:
    """Install spotgate on a cluster with room for all Pods."""
    with start_cluster(binaries) as cluster:
        populate(cluster.kubectl)
        make_room(cluster.kubectl)
        with install_webhook(cluster) as installed:
            yield installed


@pytest.fixture(scope="session")
def relay(webhook: Webhook) -> Iterator[Relay]:
    """Start a relay between the candidates and the API server."""
    with Relay(webhook.cluster.credentials.url) as relay:
        yield relay


@pytest.fixture(scope="session")
def running(webhook: Webhook, relay: Relay) -> Iterator[Controllers]:
    """Start two candidates, and yield them when the leader has renewed its Lease."""
    with controllers(webhook.cluster, relay.port) as candidates:
        webhook.wait(lambda: gates(webhook, floored("probe", 1, "1")), "the webhook has seen a renewal")
        yield candidates


@pytest.fixture
def team(webhook: Webhook, namespace: str) -> Kubectl:
    """Return the administrator's kubectl in the namespace of this test."""
    return replace(webhook.cluster.kubectl, namespace=namespace)


@pytest.fixture
def cluster(webhook: Webhook) -> Cluster:
    """Return the cluster of this folder to the shared fixtures."""
    return webhook.cluster
