"""A Pod as the webhook changes it runs on a kubelet, and each container finds its deadline in the file within two seconds."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from tests.controlplane.harness.api import accepted
from tests.node.node import PODS
from tests.node.test_stop import states
from webhook.kube.notice import DIRECTORY, FILE, INFORM, RECLAIM_AT

if TYPE_CHECKING:
    from tests.node.node import Node

JSON = dict[str, Any]

PATH = f"{PODS}/told"
SECONDS = 2
# A kubelet without the annotation's event would update the file after a minute. Other tests may use both cores.
NOTICES = [f"2026-11-29T01:0{minute}:00Z" for minute in range(5)]
WATCH = f"""\
(echo x >{DIRECTORY}/x) 2>/dev/null || echo read-only >>/log/notice-$0
[ -e {DIRECTORY}/{FILE} ] && echo empty >>/log/notice-$0
last=
while :; do
  now=
  read -r now <{DIRECTORY}/{FILE}
  [ "$now" = "$last" ] || echo "$now" >>/log/notice-$0
  last=$now
  sleep 0.05
done
"""


def watching(name: str, **fields: Any) -> JSON:
    """Return a container that logs each content of the file."""
    return {"name": name, "command": ["sh", "-c", WATCH, name], **fields}


# A container without a writable file system, one with a volume above the path, and a sidecar.
SPEC = {
    "terminationGracePeriodSeconds": 1,
    "initContainers": [watching("sidecar", restartPolicy="Always")],
    "containers": [
        watching("locked", securityContext={"readOnlyRootFilesystem": True}),
        watching("nested", volumeMounts=[{"name": "run", "mountPath": "/var/run"}]),
    ],
    "volumes": [{"name": "run", "emptyDir": {}}],
}
CONTAINERS = ("sidecar", "locked", "nested")


def test_each_container_finds_its_deadline_within_two_seconds(node: Node) -> None:
    node.run("told", SPEC, INFORM)
    try:
        node.api.wait(lambda: states({"told": node.api.get(PATH)}, "running").keys() >= set(CONTAINERS), "it runs")
        node.api.wait(lambda: logs(node) == [["read-only", "empty"]] * 3, "the files exist")
        took = [seconds_until_read(node, notice) for notice in NOTICES]
        assert logs(node) == [["read-only", "empty", *NOTICES]] * 3
        assert statistics.median(took) < SECONDS, took

        accepted(node.api.patch(PATH, {"metadata": {"annotations": {RECLAIM_AT: None}}}))
        node.api.wait(lambda: [log[-1] for log in logs(node)] == [""] * 3, "the files are empty again")
    finally:
        accepted(node.api.delete(PATH))
        node.api.wait(lambda: not states(node.pods(), "running"), "no container runs")


def seconds_until_read(node: Node, notice: str) -> float:
    """Annotate the Pod as the controller does, and return how long it takes until all containers have read the file."""
    start = time.monotonic()
    accepted(node.api.patch(PATH, {"metadata": {"annotations": {RECLAIM_AT: notice}}}))
    node.api.wait(lambda: all(log[-1] == notice for log in logs(node)), notice)
    return time.monotonic() - start


def logs(node: Node) -> list[list[str]]:
    """Return the lines that each container has logged."""
    files = [node.log / f"notice-{name}" for name in CONTAINERS]
    return [file.read_text().splitlines() if file.exists() else [] for file in files]
