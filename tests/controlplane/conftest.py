"""Control planes for the tests in this folder; `scheduling` distributes the tests over workers.

Tests that break their cluster start a separate one with `start_cluster`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.controlplane.harness.api import NODE_POOLS, Api
from tests.controlplane.harness.cluster import UNFAIR, Cluster, start_cluster
from tests.controlplane.harness.populate import POOLS, populate, start_bare_cluster
from tests.controlplane.harness.webhook import Webhook, install_webhook
from tests.controlplane.scheduling import rank_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.controlplane.harness.kubectl import Kubectl

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Tests without a webhook come first: once installed, it stays.
    items.sort(
        key=lambda item: (
            rank_of(item.nodeid),
            HERE in item.path.parents and "webhook" in getattr(item, "fixturenames", ()),
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    outcome = yield
    for thing in getattr(item, "funcargs", {}).values() if outcome.failed else ():
        if isinstance(thing, Cluster | Webhook):
            outcome.sections.append((type(thing).__name__.lower(), thing.logs()))
    return outcome


@pytest.fixture(scope="session")
def cluster(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield the control plane that a worker's tests share, with the node pools and Nodes of a small CKS cluster."""
    with start_cluster(binaries, UNFAIR) as running:
        populate(running.kubectl)
        yield running


@pytest.fixture(scope="session")
def webhook(cluster: Cluster) -> Iterator[Webhook]:
    """Install spotgate from its manifests on that control plane, at the first test that uses this fixture."""
    with install_webhook(cluster) as installed:
        yield installed


@pytest.fixture(scope="session")
def bare_cluster(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield only an etcd and an API server, with the CRD of CKS node pools: tests may stop and restart both."""
    with start_bare_cluster(binaries) as running:
        yield running


@pytest.fixture
def bare_pools(bare_cluster: Cluster) -> Iterator[None]:
    """Create the node pools of pools.yaml on the bare cluster, for one test."""
    api = Api(bare_cluster)
    for pool in yaml.safe_load_all(POOLS.read_text()):
        assert api.create(NODE_POOLS, pool).message == ""
    yield
    api.delete(NODE_POOLS)


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    """Return the administrator's kubectl."""
    return cluster.kubectl


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace for one test, which accepts Pods."""
    api = Api(cluster)
    with api.namespace("test") as name:
        yield name
        workloads = [f"/apis/apps/v1/namespaces/{name}/deployments", f"/apis/batch/v1/namespaces/{name}/jobs"]
        for path in workloads:
            api.delete(f"{path}?propagationPolicy=Foreground")

        def is_empty() -> bool:
            # The next test may need the GPUs of these Pods, and the Node of a Pod may be gone.
            api.delete(f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
            return not any(api.get(path)["items"] for path in workloads)

        api.wait(is_empty, "no workload is left")


@pytest.fixture(scope="session")
def alice(cluster: Cluster) -> Kubectl:
    """Return the kubectl of a user with all permissions who is in no group that a policy names."""
    cluster.kubectl("create", "clusterrolebinding", "platform", "--clusterrole=cluster-admin", "--group=platform")
    return cluster.as_user("alice", "platform")


@pytest.fixture
def team(alice: Kubectl, namespace: str) -> Kubectl:
    """Return alice's kubectl in the namespace of this test."""
    return replace(alice, namespace=namespace)
