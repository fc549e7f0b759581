"""The API server's contract with a webhook that doesn't answer. Each test names the upstream case that it ports.

Upstream: https://github.com/kubernetes/kubernetes/blob/v1.37.2/test/e2e/apimachinery/webhook.go (docs/webhook-contract.md)
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.builders import node_pool, pod
from tests.controlplane.harness.api import NODE_POOLS, Api, pods_in
from tests.controlplane.harness.registration import MUTATING, VALIDATING, client, configuration, entry, installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.webhook import Webhook

pytestmark = pytest.mark.usefixtures("webhook")

POOL = node_pool("unanswered", instanceType="turin-gp", targetNodes=1)


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(cluster)


@pytest.fixture(scope="module")
def own(api: Api) -> Iterator[str]:
    """Yield a namespace for these tests."""
    with api.namespace("failure") as name:
        yield name


def config_maps_in(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


# should unconditionally reject operations on fail closed webhook


@pytest.mark.parametrize("authority", ["none", "another"])
@pytest.mark.parametrize("kind", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_unconditionally_reject_operations_on_fail_closed_webhook__an_untrusted_server_is_not_called(
    kind: str, authority: str, webhook: Webhook, api: Api, own: str
) -> None:
    reference = client(api, "validate")
    del reference["caBundle"]
    if authority == "another":
        reference["caBundle"] = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    operations = ["CREATE", "UPDATE", "DELETE"]
    closed = entry(reference, own, "configmaps", failurePolicy="Fail", operations=operations)
    one = f"{config_maps_in(own)}/kept"
    before = webhook.count("spotgate_decisions_total", resource="configmaps")
    with api.created(config_maps_in(own), {"metadata": {"name": "kept"}}):
        with api.created(kind, configuration(own, closed)):
            webhook.wait(lambda: api.patch(one, {"data": {"a": "b"}}, dry_run=True).status == 500, "the entry is used")
            answers = [
                api.create(config_maps_in(own), {"metadata": {"name": "new"}}),
                api.patch(one, {"data": {"a": "b"}}),
                api.delete(one),
            ]
        webhook.wait(lambda: api.delete(one, dry_run=True).status == 200, "the entry is gone")
    assert [answer.status for answer in answers] == [500] * 3
    assert all('failed calling webhook "test.example.com"' in answer.message for answer in answers)
    assert all("x509: certificate signed by unknown authority" in answer.message for answer in answers)
    assert webhook.count("spotgate_decisions_total", resource="configmaps") == before


# should honor timeout


@contextlib.contextmanager
def frozen(webhook: Webhook) -> Iterator[None]:
    """Pause the process: it accepts connections and never answers."""
    os.kill(webhook.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(webhook.process.pid, signal.SIGCONT)


def test_honor_timeout__the_shipped_timeouts_are_at_most_three_seconds(api: Api) -> None:
    assert {entry["name"]: (entry["timeoutSeconds"], entry["failurePolicy"]) for entry in installed(api)} == {
        "mutate.spotgate.dev": (3, "Ignore"),
        "mutate-spot-namespaces.spotgate.dev": (3, "Ignore"),
        "node-pools.spotgate.dev": (3, "Fail"),
        "node-pool-updates.spotgate.dev": (3, "Ignore"),
        "namespaces.spotgate.dev": (3, "Ignore"),
        "workloads.spotgate.dev": (3, "Ignore"),
        "spot-namespaces.spotgate.dev": (3, "Ignore"),
    }


def test_honor_timeout__the_failure_policy_decides_after_a_timeout(webhook: Webhook, api: Api, own: str) -> None:
    """Pause spotgate until the calls with short timeouts fail; then it answers the others."""
    timeouts = {"fail": ("Fail", 1), "ignore": ("Ignore", 1), "patient": ("Fail", 30), "by default": ("Fail", None)}
    reference = client(api, "validate")
    entries = [
        entry(
            reference,
            own,
            "configmaps",
            name=f"{case.replace(' ', '-')}.example.com",
            failurePolicy=policy,
            timeoutSeconds=seconds,
            matchConditions=[{"name": "case", "expression": f"object.data.case == '{case}'"}],
        )
        for case, (policy, seconds) in timeouts.items()
    ]

    def create(case: str) -> int:
        thing = {"metadata": {"generateName": "slow-"}, "data": {"case": case}}
        return api.create(config_maps_in(own), thing).status

    with api.created(VALIDATING, configuration(own, *entries)) as stored, ThreadPoolExecutor() as threads:
        assert stored["webhooks"][-1]["timeoutSeconds"] == 10
        before = webhook.count("spotgate_decisions_total", resource="configmaps")
        webhook.wait(
            lambda: (
                create("by default") == 201
                and webhook.count("spotgate_decisions_total", resource="configmaps") > before
            ),
            "the entries are used",
        )
        with frozen(webhook):
            late = {case: threads.submit(create, case) for case in ("patient", "by default")}
            soon = {case: threads.submit(create, case) for case in ("fail", "ignore")}
            pool = threads.submit(api.create, NODE_POOLS, POOL)
            workload = threads.submit(api.create, pods_in(own).replace("pods", "podtemplates"), template())
            statuses = {case: future.result() for case, future in soon.items()}
            refused, let_in = pool.result(), workload.result()
            assert not late["patient"].done()
        statuses |= {case: future.result() for case, future in late.items()}
    assert statuses == {"fail": 500, "ignore": 201, "patient": 201, "by default": 201}
    assert refused.status == 500
    assert 'failed calling webhook "node-pools.spotgate.dev"' in refused.message
    assert "context deadline exceeded" in refused.message
    assert let_in.status == 201


def template() -> dict[str, object]:
    """Return a PodTemplate that spotgate denies if it can; PodTemplates are only validated."""
    labelled = pod("web") | {"metadata": {"labels": {"foo.coreweave.cloud/bar": "x"}}}
    return {"metadata": {"name": "web"}, "template": {key: labelled[key] for key in ("metadata", "spec")}}
