"""One call decides the Pod of a controller as the two calls for it would, and leaves the same traces."""

from __future__ import annotations

import base64
import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.builders import BUNDLE, cks_pool, labeled, pod, view_of
from tests.server.harness import eventually, review
from webhook.capacity.view import FixedState
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.model.patch import apply_json
from webhook.server.http.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import Start
    from tests.server.harness import Served

JSON = dict[str, Any]

REPLICASET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
TWO_CALLS = msgspec.structs.replace(BUNDLE, warns_controllers=False)
STATE = FixedState(view_of(cks_pool("spot", gpu=False, taints=("example.com/spot=true:NoSchedule",))))
SPOT = {"spotgate.dev/capacity": "spot"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
PODS: dict[str, JSON] = {
    "nothing to find": pod("web-0"),
    "patched, without findings": labeled(pod("web-0"), {"spotgate.dev/workload-class": "batch"} | SPOT),
    "a denial that becomes a warning": labeled(pod("web-0"), {"x.coreweave.cloud/y": "z"}),
    "patched, with warnings": labeled(
        pod("web-0", terminationGracePeriodSeconds=4000), SPOT | {"qos.coreweave.cloud/interruptable": "false"}
    ),
    "too large": labeled(pod("web-0"), {f"k{number}": "v" for number in range(3000)} | SPOT),
    "exempt in part": labeled(pod("web-0", nodeName="node-1"), SPOT),
}

COUNTED = ("decisions", "findings", "would_deny", "unknown", "break_glass", "policy_errors", "recorded")
COUNTERS = tuple(f"spotgate_{name}_total" for name in COUNTED)


def sent(thing: JSON, user: str = REPLICASET_CONTROLLER) -> bytes:
    thing["metadata"]["ownerReferences"] = [OWNER]
    return review(object=thing, userInfo={"username": user, "groups": []})


def calls(served: Served, folder: Path, thing: JSON, paths: list[str]) -> tuple[list[JSON], list[Any]]:
    """Send a controller's Pod to each path in turn, with the patches so far.

    Return the responses, and the traces: the decision log, the recorded lines, and the counters.
    """
    folder.mkdir(mode=0o700)
    webhook = served.replica.webhook
    recorder = webhook._recorder = Recorder(folder, webhook._metrics, webhook._limits)
    recorder.start()
    answers = []
    for path in paths:
        answers.append(served.post(sent(thing), path).json["response"])
        if patch := answers[-1].get("patch"):
            thing = apply_json(json.loads(base64.b64decode(patch)), deepcopy(thing))
    eventually(lambda: len(served.log("decision")) == 2)
    recorder.close()
    log = [{key: line[key] for key in line.keys() - {"ms", "peer", "timestamp"}} for line in served.log("decision")]
    recorded = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    for line in recorded:
        del line["spotgate"]["time"]
    metrics = [line for line in served.ops("/metrics").body.decode().splitlines() if line.startswith(COUNTERS)]
    return answers, [log, recorded, metrics]


def audit_annotations(*answers: JSON) -> JSON:
    return {key: text for answer in answers for key, text in answer.get("auditAnnotations", {}).items()}


@pytest.mark.parametrize("name", PODS)
def test_one_call_leaves_the_traces_of_two(name: str, start: Start, tmp_path: Path) -> None:
    served = start(BUNDLE, STATE)
    (answer,), traces = calls(served, tmp_path / "one", PODS[name], ["/mutate"])
    assert served.metric("spotgate_request_seconds_count") == 1
    (mutation, validation), expected = calls(
        start(TWO_CALLS, STATE), tmp_path / "two", PODS[name], ["/mutate", "/validate"]
    )

    assert traces == expected
    assert answer["allowed"]
    assert audit_annotations(answer) == audit_annotations(mutation, validation)
    assert answer.get("warnings") == validation.get("warnings")
    assert answer.get("patch") == mutation.get("patch")
    assert ("patch" in answer) == name.startswith("patched")


@pytest.mark.parametrize("user", ["anna@example.com", "system:serviceaccount:kube-system:other", "system:apiserver"])
def test_the_pods_of_users_take_two_calls(user: str, start: Start) -> None:
    served = start(BUNDLE, STATE)
    answer = served.post(sent(PODS["a denial that becomes a warning"], user), "/mutate").json["response"]
    assert "auditAnnotations" not in answer
    eventually(lambda: bool(served.log("decision")))
    assert [line["phase"] for line in served.log("decision")] == ["mutate"]
    assert not served.post(sent(PODS["a denial that becomes a warning"], user)).allowed


DENYING = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: mine}
spec: {domains: [example.com], controllerCreated: deny}
"""
MODE = "apiVersion: spotgate.dev/v1\nkind: Mode\nmetadata: {name: mode}\nspec: {workloadFailurePolicy: Fail}\n"
PLAIN = DENYING.replace(", controllerCreated: deny", "")


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["shipped"], True),
        (["shipped", PLAIN], True),
        ([PLAIN], False),  # no policy changes Pods, so there is no mutating webhook
        (["shipped", DENYING], False),
        (["shipped", MODE], False),  # an outage denies these Pods
    ],
)
def test_one_call_decides_only_if_nothing_can_deny(sources: list[str], *, expected: bool, tmp_path: Path) -> None:
    paths = [SHIPPED if text == "shipped" else tmp_path / f"{number}.yaml" for number, text in enumerate(sources)]
    for path, text in zip(paths, sources, strict=True):
        if path != SHIPPED:
            path.write_text(text)
    assert load_bundle(paths).decides_once is expected
