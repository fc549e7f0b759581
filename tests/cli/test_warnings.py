"""What of the policies has no effect, or ends: said by every command that loads them, and in the reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import POD
from webhook.offline import options

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


POLICY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec:
  domains: [example.org]
  match: {resourceRules: [{apiGroups: [''], resources: [pod], operations: [CREATE]}]}
"""
FIELD = "spec.match.resourceRules[0].resources[0]"
TEXT = "never matches: Kubernetes has no resource pod in API group '', did you mean `pods`?"
WARNING = f"policy.yaml:6:57: {FIELD}: warning: {TEXT}\n"
SHOWS_NOTHING = (
    "test.yaml:6:41: spec.cases[0].expect.outcome: warning: "
    "allowed whatever the policies say: labels never looks at pods\n"
)
TEST = """\
apiVersion: spotgate.dev/v1
kind: PolicyTest
metadata: {name: pods}
spec:
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a}]}}
  cases: [{name: a Pod passes, expect: {outcome: allowed}}]
"""


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("policy.yaml", POLICY)
    write("pod.yaml", POD)
    write("test.yaml", TEST)


@pytest.mark.parametrize(
    "command", ["check pod.yaml", "explain pod.yaml", "fix pod.yaml", "test test.yaml", "webhook-config"]
)
def test_a_policy_that_never_matches_is_a_warning_and_no_error(run: Run, command: str) -> None:
    name, *files = command.split()
    done = run(name, "--policies", "policy.yaml", *files)
    assert (done.code, done.err) == (0, WARNING + (SHOWS_NOTHING if name == "test" else ""))


def test_the_report_has_it_too(run: Run) -> None:
    done = run("check", "--policies", "policy.yaml", "-o", "json", "pod.yaml")
    assert json.loads(done.out)["warnings"] == [{"file": "policy.yaml", "line": 6, "field": FIELD, "message": TEXT}]

    done = run("check", "--policies", "policy.yaml", "-o", "github", "pod.yaml")
    assert done.out == f"::warning file=policy.yaml,line=6,col=57,title=spotgate::{TEXT}\n"

    done = run("check", "--policies", "policy.yaml", "-o", "sarif", "pod.yaml")
    (notification,) = json.loads(done.out)["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert (notification["level"], notification["message"]["text"]) == ("warning", TEXT)


def test_an_exemption_document_that_ends_is_called_to_mind(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "utc_now", lambda: datetime(2026, 2, 26, 23, 59, tzinfo=UTC))
    exemption = """\
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {name: team-a}
spec: {policies: ["*"], namespaces: [team-a], reason: migration, expires: 2026-03-01}
"""
    write("policy.yaml", POLICY.replace("[pod]", "[pods]"))
    done = run("check", "--policies", "policy.yaml", "--policies", write("team-a.yaml", exemption), "pod.yaml")
    assert done.err == (
        "team-a.yaml:4:66: spec.expires: warning: the exemption ends on 2026-03-01 (migration); "
        "extend it, or correct the objects that it exempts\n"
    )
