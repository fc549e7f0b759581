"""The webhook is down: what still works, what does not, and what is said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.kubectl import as_list
from tests.controlplane.objects import deployment, node_pool, pod, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.kubectl import Kubectl
    from tests.controlplane.webhook import Webhook

KIND = "nodepools.compute.coreweave.com"
POOL = node_pool("outage")
SPOT = {"spotgate.dev/capacity": "spot"}
RESERVED = {"foo.coreweave.cloud/bar": "x"}
FAILED = re.compile(
    r"Error from server \(InternalError\): (error when creating \"STDIN\": )?Internal error occurred: failed calling webhook "
    r'"node-pools\.spotgate\.dev": failed to call webhook: Post "https://spotgate\.spotgate-system\.svc:\d+/validate\?timeout=3s": '
    r"dial tcp \S+: connect: connection refused\n"
)


def test_when_it_is_back_everything_is_as_before(alice: Kubectl, team: Kubectl, webhook: Webhook) -> None:
    webhook.stop()
    try:
        team.apply(saying(pod("before"), SPOT))
        assert alice.run("apply", "--filename=-", documents=as_list(POOL)).returncode == 1
    finally:
        webhook.start()
    team.apply(saying(pod("after"), SPOT))
    assert "nodeSelector" in team.get("pod", "after")["spec"]
    denied = team.run("apply", "--filename=-", documents=as_list(saying(pod("denied"), RESERVED)))
    assert "[reserved-labels]" in denied.stderr
    assert alice.apply(POOL) == "nodepool.compute.coreweave.com/outage created\n"
    assert alice("delete", KIND, "outage") == 'nodepool.compute.coreweave.com "outage" deleted\n'


@pytest.fixture(scope="module")
def outage(webhook: Webhook) -> Iterator[None]:
    """The webhook does not answer, until the tests of this file are over."""
    webhook.stop()
    yield
    webhook.start()
    webhook.wait_until_called()


@pytest.mark.usefixtures("outage")
def test_pods_start_as_they_are_and_without_a_word(team: Kubectl) -> None:
    things = (saying(pod("labelled"), SPOT | RESERVED), deployment("web", 2), saying(deployment("worker", 0), RESERVED))
    result = team.run("apply", "--filename=-", documents=as_list(*things))
    assert (result.returncode, result.stderr) == (0, "")
    team("wait", "--for=condition=Ready", "pod/labelled", "--timeout=60s")
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert "nodeSelector" not in team.get("pod", "labelled")["spec"]
    for command in ("scale deployment/web --replicas=3", "delete pod/labelled", "delete deployment/web"):
        result = team.run(*command.split())
        assert (result.returncode, result.stderr) == (0, ""), command


@pytest.mark.usefixtures("outage")
def test_node_pools_can_not_be_changed_and_it_is_said_who_did_not_answer(alice: Kubectl) -> None:
    before = alice.get(KIND)["items"]
    for result in (
        alice.run("apply", "--filename=-", documents=as_list(POOL)),
        alice.run("apply", "--server-side", "--filename=-", documents=as_list(POOL)),
        alice.run("label", KIND, "h100", "team=blue"),
        alice.run("scale", f"{KIND}/h100", "--replicas=5"),
        alice.run("delete", KIND, "h100-spot"),
    ):
        assert (result.returncode, result.stdout) == (1, "")
        assert FAILED.fullmatch(result.stderr), result.stderr
    assert alice.get(KIND)["items"] == before


@pytest.mark.usefixtures("outage")
def test_without_it_nothing_but_its_configurations_has_to_go(alice: Kubectl, webhook: Webhook) -> None:
    """The emergency exit of docs/install.md: the API server asks no webhook about these."""
    configurations = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    kept = alice.get(configurations, "--selector=app.kubernetes.io/name=spotgate")
    alice("delete", configurations, "spotgate")
    try:
        webhook.wait(
            lambda: alice.run("apply", "--filename=-", documents=as_list(POOL)).returncode == 0, "it is not asked"
        )
        alice("delete", KIND, "outage")
    finally:
        for each in kept["items"]:
            each["metadata"] = {key: each["metadata"][key] for key in ("name", "labels")}
        alice("create", "--filename=-", documents=as_list(*kept["items"]))
