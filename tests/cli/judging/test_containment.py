"""A bug in one policy costs only that policy's verdict on that object: all commands evaluate the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import review
from webhook.model.decision import Decision
from webhook.rules.context import Phase
from webhook.rules.graceful_termination.rule import GracefulTermination
from webhook.rules.spot_suitability.rule import SpotSuitability

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write
    from webhook.model.review import Request
    from webhook.rules.subject import Subject

STATE = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: spot}
spec: {computeClass: spot, instanceType: turin-gp, targetNodes: 3}
"""
OBJECTS = """\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Pod
    metadata: {name: NAME, labels: {app: web, spotgate.dev/capacity: spot, foo.coreweave.com/bar: x}}
    spec: {containers: [{name: main, image: example.com/web}]}
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: NAME}
    spec:
      replicas: 3
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web, spotgate.dev/capacity: spot, foo.coreweave.com/bar: x}}
        spec: {containers: [{name: main, image: example.com/web}]}
"""
TESTS = """\
apiVersion: spotgate.dev/v1
kind: PolicyTest
metadata: {name: tests}
spec:
  cases:
    - name: one
      object: {apiVersion: v1, kind: Pod, metadata: {name: broken}, spec: {containers: [{name: main, image: a}]}}
      expect: {outcome: denied}
"""


@pytest.fixture(
    params=[(GracefulTermination, "mutate"), (GracefulTermination, "validate"), (SpotSuitability, "validate")], ids=str
)
def policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Break a method of a rule for objects named broken, and return the name of the shipped policy."""
    rule, method = request.param
    sound = getattr(rule, method)

    def broken(self: object, subject: Subject, *more: Any) -> Any:
        if subject.request.name == "broken":
            raise KeyError("hunter2")
        return sound(self, subject, *more)

    monkeypatch.setattr(rule, method, broken)
    return "graceful-termination" if rule is GracefulTermination else "spot-suitability"


@pytest.fixture
def files(write: Write) -> list[str]:
    """Write two objects and the state, and return the arguments that name them."""
    write("state.yaml", STATE)
    return [
        "--state",
        "state.yaml",
        *(str(write(f"{name}.yaml", OBJECTS.replace("NAME", name))) for name in ("broken", "sound")),
    ]


def test_check_reports_the_failure_and_everything_else(policy: str, files: list[str], run: Run) -> None:
    done = run("check", "-o", "json", *files)
    assert done.code == 2
    results = done.json["results"]
    failed = [result for result in results if result["id"] == "object/internal-error"]
    assert [(result["kind"], result["field"], result["line"]) for result in failed] == [
        ("Pod", "", 4),
        ("Deployment", "spec.template", 14),
    ]
    assert {(result["name"], result["policy"], result["outcome"]) for result in failed} == {
        ("broken", policy, "indeterminate")
    }
    denied = [(result["name"], result["kind"]) for result in results if result["outcome"] == "deny"]
    assert denied == [(name, kind) for name in ("broken", "sound") for kind in ("Pod", "Deployment")]
    assert f"broken.yaml:4:5: policy {policy} couldn't evaluate the object because of a bug in spotgate" in done.err
    assert "KeyError at " in done.err
    assert "hunter2" not in done.out + done.err


def test_fix_leaves_the_object_and_writes_the_others(policy: str, files: list[str], run: Run) -> None:
    done = run("fix", *files)
    assert (done.code, done.out) == (2, "sound.yaml: changed\n")
    assert done.err.count("\n") == 1
    assert f"policy {policy}" in done.err
    assert "`fix` leaves the object as it is" in done.err


def test_explain_explains_the_other_policies(policy: str, files: list[str], run: Run) -> None:
    done = run("explain", *files)
    assert done.code == 2
    broken, sound = done.out.split("Deployment default/")[1:]
    assert f"indeterminate: policy {policy} couldn't evaluate the object" in broken
    assert "denies      reserved-labels" in broken
    assert "bug" not in sound


def test_fn_leaves_the_object_and_changes_the_others(policy: str, files: list[str], run: Run) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"state": files[1]}}
    items = [yaml.safe_load(OBJECTS.replace("NAME", name))["items"][0] for name in ("broken", "sound")]
    resources = {
        "apiVersion": "config.kubernetes.io/v1",
        "kind": "ResourceList",
        "items": items,
        "functionConfig": config,
    }
    done = run("fn", stdin=json.dumps(resources).encode())
    answer = yaml.safe_load(done.out)
    assert (done.code, answer["items"][0] == items[0], answer["items"][1] == items[1]) == (2, True, False)
    injected = {
        result["resourceRef"]["name"] for result in answer["results"] if result["message"].startswith("injected")
    }
    assert injected == {"sound"}
    assert any(policy in result["message"] for result in answer["results"] if result["severity"] == "error")


def test_review_answers(policy: str, files: list[str], run: Run, write: Write) -> None:
    del files
    labels = {"spotgate.dev/capacity": "spot", "foo.coreweave.com/bar": "x"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}]}}
    file = write("review.json", review(pod, name="broken"))
    mutated, validated = (
        run("review", "--phase", phase, "--state", "state.yaml", file).json["response"] for phase in Phase
    )
    assert (mutated["allowed"], validated["allowed"]) == (True, False)
    assert "foo.coreweave.com/bar" in validated["status"]["message"]
    assert f"policy {policy} couldn't evaluate" in " ".join(
        (*mutated.get("warnings", ()), *validated.get("warnings", ()))
    )


def test_replay_reports_a_failure_of_both_policies(policy: str, run: Run, write: Write) -> None:
    pod = {"metadata": {"labels": {"spotgate.dev/capacity": "spot"}}, "spec": {"containers": [{"name": "main"}]}}
    file = write("review.json", review(pod, name="broken"))
    done = run("replay", "--policies", "shipped", "--against", "shipped", "--state", write("state.yaml", STATE), file)
    assert done.code == 2
    assert f"{file}:1:1: policy {policy} couldn't evaluate the object" in done.err


def test_a_policy_test_cant_run(policy: str, run: Run, write: Write) -> None:
    done = run("test", "--policies", "shipped", write("tests.yaml", TESTS))
    assert done.code == 2
    assert f"policy {policy} couldn't evaluate the object" in done.out + done.err


def test_a_bug_outside_the_policies_costs_one_object(
    files: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: Request, *_: Any) -> tuple[Decision, Decision]:
        if request.name == "broken":
            raise KeyError("hunter2")
        return Decision(), Decision()

    monkeypatch.setattr("webhook.judging.judge.decide_both", broken)
    done = run("check", "-o", "json", *files)
    assert (done.code, done.json["summary"]["documents"]) == (2, 4)
    assert "broken.yaml:4:5: can't be evaluated because of a bug in spotgate; report it: KeyError at " in done.err
