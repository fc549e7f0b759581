"""``spotgate test``: cases pass and fail for the right reasons, and what makes no sense is never a pass."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.bundle import SHIPPED
from webhook.cli.policy_tests_expectations import differences, golden_difference
from webhook.decision import Verdict
from webhook.policy.policy_test import ExpectSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run

    Write = Callable[[str, str | bytes], Path]

POLICY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec:
  domains: [example.com]
  exempt:
    - {groups: [platform], reason: they own it}
    - {users: [ci], reason: it is a robot}
"""
OTHERS = """\
apiVersion: spotgate.dev/v1
kind: OnDemandFallback
metadata: {name: fallback}
spec: {breakGlass: {groups: [admins]}}
---
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
---
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: placement}
---
apiVersion: spotgate.dev/v1
kind: EvictionStrategy
metadata: {name: eviction}
spec: {enforcement: "off"}
"""
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"team": "a"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
ON_SPOT = {"metadata": {"name": "web", "labels": {"spotgate.dev/capacity": "spot"}}}
RESERVED = {"metadata": {"name": "web", "labels": {"example.com/x": "b"}}}
SPOT_POOL: dict[str, Any] = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "gpu-spot"},
    "spec": {"computeClass": "spot", "instanceType": "gd-8xh100ib-i128", "targetNodes": 2},
}
CPU_SPOT_POOL = {**SPOT_POOL, "spec": {**SPOT_POOL["spec"], "instanceType": "turin-gp"}}
ON_DEMAND_POOL = {**SPOT_POOL, "metadata": {"name": "gpu"}, "spec": {**SPOT_POOL["spec"], "computeClass": "default"}}


def policy_test(*cases: dict[str, Any], **shared: Any) -> str:
    """A PolicyTest; cases without a name get a number."""
    named = [{"name": f"case {number}", **case} for number, case in enumerate(cases)]
    spec = {"object": POD, **shared, "cases": named}
    document = {"apiVersion": "spotgate.dev/v1", "kind": "PolicyTest", "metadata": {"name": "mine"}, "spec": spec}
    return yaml.safe_dump(document, sort_keys=False)


def expecting(outcome: str, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, **more}


@pytest.fixture
def tested(run: Run, write: Write) -> Callable[..., Any]:
    """Runs cases against three policies; gives the exit code, and the texts of mismatches or problems of each case."""
    write("policies/policy.yaml", POLICY)
    write("policies/others.yaml", OTHERS)

    def tested(*cases: dict[str, Any], **shared: Any) -> tuple[int, list[list[str]]]:
        write("policies/tests/mine.yaml", policy_test(*cases, **shared))
        done = run("test", "policies", "-o", "json")
        assert done.out, done.err
        return done.code, [[said["text"] for said in (*c["mismatches"], *c["problems"])] for c in done.json["cases"]]

    return tested


def test_shipped_policies_pass_their_tests_and_each_has_one_that_makes_it_act_and_one_that_does_not(run: Run) -> None:
    done = run("test", SHIPPED, "--coverage", "-o", "json")
    assert (done.code, done.err) == (0, "")
    unreached = {each["policy"]: each["unreached"] for each in done.json["coverage"]}
    assert [each for each in unreached.values() if each] == []
    kinds = [yaml.safe_load_all(file.read_text()) for file in SHIPPED.glob("*.yaml")]
    named = {each["metadata"]["name"] for file in kinds for each in file if "metadata" in each}
    assert set(unreached) == named - {"workloads"}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, "allowed"),
        ({"object": RESERVED}, "denied"),
        ({"object": RESERVED, "groups": ["platform"]}, "allowed"),
        ({"object": RESERVED, "user": "ci"}, "allowed"),
        ({"object": RESERVED, "namespace": {"name": "kube-system"}}, "allowed"),
        ({"object": RESERVED, "oldObject": RESERVED}, "allowed"),
        ({"object": RESERVED, "oldObject": {}}, "denied"),
        ({"object": RESERVED, "operation": "DELETE"}, "allowed"),
        ({"object": RESERVED, "user": "system:kube-controller-manager"}, "warned"),
        ({"object": {**SPOT_POOL}}, "denied"),
        ({"object": {**SPOT_POOL}, "state": {"objects": [ON_DEMAND_POOL]}}, "allowed"),
        ({"object": ON_DEMAND_POOL, "operation": "DELETE", "state": {"objects": [SPOT_POOL]}}, "denied"),
        ({"object": {}, "oldObject": ON_DEMAND_POOL, "operation": "DELETE"}, None),
        ({"oldObject": ON_DEMAND_POOL, "operation": "DELETE", "state": {"objects": [SPOT_POOL]}}, "denied"),
        ({"oldObject": ON_DEMAND_POOL, "operation": "DELETE", "state": {"objects": [ON_DEMAND_POOL]}}, "allowed"),
        ({"object": ON_SPOT}, "indeterminate"),
    ],
)
def test_outcome_is_that_of_the_request_in_its_surroundings(
    tested: Callable[..., Any], case: dict[str, Any], expected: str | None
) -> None:
    if expected is None:
        code, said = tested({**case, "expect": expecting("allowed")})
        assert (code, said) == (2, [["DELETE has one object; write it as `oldObject` or as `object`"]])
        return
    verdicts = ("allowed", "audited", "indeterminate", "warned", "denied")
    cases = [{**case, "name": verdict, "expect": expecting(verdict)} for verdict in verdicts]
    code, said = tested(*cases)
    got = [[] if verdict == expected else [f"expected {verdict}, got {expected}"] for verdict in verdicts]
    assert (code, said) == (1, got)


def test_all_that_came_out_differently_is_said_at_its_line(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    text = policy_test(
        {
            "object": RESERVED,
            "expect": {
                "outcome": "warned",
                "policies": [],
                "messages": ["reserved   domain\nexample.com", "no such text"],
                "changed": True,
                "object": {"metadata": {"name": "web", "labels": {"team": "b", "example.com/x": None}}, "spec": 1},
            },
        }
    )
    write("policies/tests/mine.yaml", text)
    lines = {line.strip(): number for number, line in enumerate(text.splitlines(), 1)}
    done = run("test", "policies")
    assert (done.code, done.err) == (1, "")
    file = "    policies/tests/mine.yaml"
    assert done.out.splitlines() == [
        f"policies/tests/mine.yaml:{lines['- name: case 0']}  FAILED  mine: case 0",
        f"{file}:{lines['outcome: warned']}: outcome: expected warned, got denied",
        f"{file}:{lines['policies: []']}: policies: expected none, got labels",
        f"{file}:{lines['- no such text']}: messages[1]: no finding says 'no such text'",
        f"{file}:{lines['changed: true']}: changed: the object is not changed",
        f'{file}:{lines["team: b"]}: object.metadata.labels.team: expected "b", got "a"',
        f'{file}:{lines["example.com/x: null"]}: object.metadata.labels["example.com/x"]: expected none, got "b"',
        f'{file}:{lines["spec: 1"]}: object.spec: expected 1, got {{"containers": [{{"name": "main", "image": "busybox"}}]}}',
        "    What was found:",
        '      deny: [labels] label example.com/x is in the reserved domain example.com (at metadata.labels["example.com/x"])',
        "        Labels in example.com and its subdomains belong to the platform, which rejects those that users set.",
        "        Fix: remove it, or use a domain of your own, e.g. example.com/x",
        "",
        "1 case against policies: 1 failed",
    ]


PROD = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: prod}
spec:
  match:
    resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]
    namespaces: {include: ["prod-*"]}
  exempt: [{users: [ci], reason: it is a robot}]
  matchConditions: [{name: no-jobs, expression: object.metadata.name != 'job'}]
  validations: [{expression: object.metadata.name != 'a'}, {expression: object.metadata.name != 'b'}]
---
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: services}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [services], operations: [CREATE]}]}
  validations: [{expression: object.metadata.name != 'a'}]
"""
IN_PROD = {"name": "prod-1"}


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (
            {"namespace": {"name": "team-a"}},
            ["prod skips: match.namespaces.include does not name namespace team-a"],
        ),
        (
            {"operation": "UPDATE", "oldObject": {}, "namespace": IN_PROD},
            ["prod skips: match.resourceRules names pods on CREATE, not on UPDATE"],
        ),
        (
            {"object": {"metadata": {"name": "job"}}, "namespace": IN_PROD},
            ["prod skips: matchConditions[0] no-jobs is false"],
        ),
        (
            {"user": "ci", "namespace": IN_PROD},
            ["prod exempts: exempt: it is a robot, by exempt[0] at policies/prod.yaml:8"],
        ),
        ({"namespace": IN_PROD}, ["prod passes: validations[0] is true; validations[1] is true"]),
        (
            {"namespace": {"name": "kube-system"}},
            ["prod skips: namespace kube-system is a system namespace: never touched"],
        ),
        (
            {"namespace": IN_PROD, "policies": ["services", "prod"]},
            ["prod passes: validations[0] is true; validations[1] is true", "services skips: it never looks at pods"],
        ),
        ({"object": {"kind": "Secret", "spec": None}}, []),
    ],
)
def test_a_case_that_finds_nothing_says_why(run: Run, write: Write, case: dict[str, Any], why: list[str]) -> None:
    write("policies/prod.yaml", PROD)
    write("policies/tests/t.yaml", policy_test({**case, "expect": expecting("denied")}))
    done = run("test", "policies")
    assert (done.code, done.err) == (1, "")
    _, found, said = done.out.rpartition("\n\n")[0].partition("    Nothing was found")
    assert (found, said.splitlines()) == (
        "    Nothing was found",
        [":", *(f"      {line}" for line in why)] if why else ["."],
    )


def test_a_case_says_why_a_policy_that_it_expects_found_nothing_beside_another(run: Run, write: Write) -> None:
    write("policies/prod.yaml", PROD)
    write("policies/policy.yaml", POLICY)
    expect = expecting("denied", policies=["labels", "prod"])
    write("policies/tests/t.yaml", policy_test({"object": RESERVED, "namespace": {"name": "dev"}, "expect": expect}))
    done = run("test", "policies")
    assert done.out.splitlines()[2] == "    What was found:"
    assert done.out.rpartition("\n\n")[0].endswith(
        "    Nothing was found:\n      prod skips: match.namespaces.include does not name namespace dev"
    )


@pytest.mark.parametrize(
    ("case", "never"),
    [
        ({"policies": ["services"]}, "services never looks at pods"),
        ({"policies": ["prod"], "operation": "DELETE"}, ""),
        ({"policies": ["prod", "services"]}, ""),
        ({"object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {}}}, ""),
        (
            {"object": {"kind": "ConfigMap", "spec": None}},
            "prod, services never look at configmaps",
        ),
        ({"object": SPOT_POOL}, "prod, services never look at nodepools.compute.coreweave.com"),
    ],
)
def test_a_case_that_no_policy_can_refuse_is_a_warning(
    run: Run, write: Write, case: dict[str, Any], never: str
) -> None:
    write("policies/prod.yaml", PROD)
    write("policies/tests/t.yaml", policy_test({**case, "expect": expecting("allowed")}))
    done = run("test", "policies")
    assert done.code == 0
    where = "spec.cases[0].expect.outcome: warning: allowed whatever the policies say"
    assert done.err.partition(" ")[2] == (f"{where}: {never}\n" if never else "")
    told = run("test", "policies", "-o", "json").json["warnings"]
    assert [each["text"].rpartition("say: ")[2] for each in told] == [never] * bool(never)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"spec": {"terminationGracePeriodSeconds": 60}}, []),
        ({"spec": {"terminationGracePeriodSeconds": 61}}, ["expected 61, got 60"]),
        ({"spec": {"terminationGracePeriodSeconds": 60.5}}, ["expected 60.5, got 60"]),
        ({"spec": {"hostNetwork": False}}, ["expected false, which is not there"]),
        ({"spec": {"hostNetwork": None}}, []),
        ({"spec": {"containers": [{"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]}}, []),
        ({"spec": {"containers": [{"name": "main"}, {}]}}, ["expected 2 items, got 1: "]),
        ({"spec": {"containers": [{"lifecycle": None}]}}, ["expected none, got "]),
        ({"spec": {"containers": {}}}, ["expected {}, got "]),
    ],
)
def test_object_is_a_part_of_what_comes_out(
    tested: Callable[..., Any], expected: dict[str, Any], said: list[str]
) -> None:
    pod = {**ON_SPOT, "spec": {"containers": [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}]}]}}
    state = {"objects": [CPU_SPOT_POOL]}
    expect = expecting("allowed", changed=True, object=expected)
    code, texts = tested({"object": pod, "state": state, "expect": expect})
    assert code == bool(said)
    assert [text[: len(start)] for text, start in zip(texts[0], said, strict=True)] == said


def test_kubernetes_version_counts(tested: Callable[..., Any]) -> None:
    pod = {**ON_SPOT, "spec": {"containers": [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}]}]}}

    def sleep(version: str, method: str) -> dict[str, Any]:
        expected = {"spec": {"containers": [{"lifecycle": {"preStop": {method: None}}}]}}
        return {"name": version, "kubernetesVersion": version, "expect": expecting("allowed", object=expected)}

    code, said = tested(
        sleep("1.29", "sleep"), sleep("v1.34.2", "exec"), object={**POD, **pod}, state={"objects": [CPU_SPOT_POOL]}
    )
    assert (code, said) == (0, [[], []])


def test_what_the_document_says_holds_for_cases_that_do_not_say_it(tested: Callable[..., Any]) -> None:
    code, said = tested(
        {"expect": expecting("allowed")},
        {"user": "jane", "expect": expecting("denied")},
        {"user": "jane", "object": {"metadata": {"labels": None}}, "expect": expecting("allowed")},
        object={**POD, **RESERVED},
        user="ci",
    )
    assert (code, said) == (0, [[], [], []])


ENDING = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: ending}
spec:
  domains: [ending.example]
  exempt:
    - {names: [web], reason: until it is mended, expires: 2099-01-31}
"""


def test_an_exemption_holds_up_to_its_last_day(tested: Callable[..., Any], write: Write) -> None:
    write("policies/ending.yaml", ENDING)
    code, said = tested(
        {"date": "2099-01-31", "expect": expecting("allowed")},
        {"date": "2099-02-01", "expect": expecting("denied", policies=["ending"])},
        object={**POD, "metadata": {"name": "web", "labels": {"ending.example/x": "b"}}},
    )
    assert (code, said) == (0, [[], []])
    assert tested({"expect": expecting("denied")}, date="2099-02-01", object={**POD, **RESERVED}) == (0, [[]])


def test_only_the_policies_that_are_named_judge(tested: Callable[..., Any]) -> None:
    code, said = tested(
        {"object": RESERVED, "expect": expecting("allowed")},
        {"object": RESERVED, "policies": ["labels"], "expect": expecting("denied", policies=["labels"])},
        policies=["termination", "fallback"],
    )
    assert (code, said) == (0, [[], []])


def test_state_is_read_beside_the_file(tested: Callable[..., Any], write: Write) -> None:
    write("policies/tests/state/pools.yaml", yaml.safe_dump(ON_DEMAND_POOL))
    case = {"object": SPOT_POOL, "expect": expecting("allowed")}
    assert tested({**case, "state": {"files": ["state/pools.yaml"]}}) == (0, [[]])
    code, said = tested({**case, "state": {"files": ["pools.yaml"]}})
    assert (code, said) == (2, [["can't be read: No such file or directory", "can't be read, see there"]])


def test_labels_of_the_namespace_are_known(tested: Callable[..., Any]) -> None:
    labels = {"ns.coreweave.cloud/org": "control-plane"}
    code, said = tested(
        {"namespace": {"name": "infra", "labels": labels}, "expect": expecting("allowed")},
        {"namespace": {"name": "infra"}, "expect": expecting("denied")},
        object={**POD, **RESERVED},
    )
    assert (code, said) == (0, [[], []])


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"operation": "CREATE", "oldObject": {}}, "there is none before a CREATE; remove it, or write UPDATE"),
        ({"operation": "UPDATE"}, "UPDATE needs `oldObject`"),
        (
            {"oldObject": {"metadata": {"name": "x"}}},
            "is another object: its name is 'x', and that of `object` is 'web'",
        ),
        ({"object": {"kind": None}}, "is no Kubernetes object: it has no `kind`"),
        ({"object": {"kind": "Pdo"}}, "nothing says which resource kind Pdo of v1 is"),
        ({"object": {"kind": "Deployment"}}, "v1 has no kind Deployment; did you mean apiVersion: apps/..."),
        ({"object": {"spec": {"containers": "x"}}}, "the object can't be read"),
        ({"policies": ["lables"]}, "there is no policy 'lables', or it is off, did you mean `labels`?"),
        ({"policies": ["eviction"]}, "there is no policy 'eviction', or it is off"),
        (
            {"namespace": {"name": "a"}, "object": {"metadata": {"namespace": "b"}}},
            "the object is in namespace 'b', and the request in 'a'",
        ),
    ],
)
def test_a_case_that_makes_no_sense_is_not_judged(
    tested: Callable[..., Any], case: dict[str, Any], problem: str
) -> None:
    code, said = tested({**case, "expect": expecting("allowed")}, {"expect": expecting("allowed")})
    assert code == 2
    assert said[0][0].startswith(problem)
    assert said[1] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("outcome: allowed", ""),
        (
            "outcom: allowed",
            "t.yaml:8:16: spec.cases[0].expect.outcom: unknown field `outcom`, did you mean `outcome`?",
        ),
        ("outcome: deny", "t.yaml:8:16: spec.cases[0].expect.outcome: 'deny' is not one of allowed, audited"),
        ("outcome: allowed, changed: 1", "t.yaml:8:34: spec.cases[0].expect.changed: input should be a valid boolean"),
    ],
)
def test_a_mistake_in_a_test_is_said_with_its_line(run: Run, write: Write, text: str, problem: str) -> None:
    write(
        "t.yaml",
        f"""\
apiVersion: spotgate.dev/v1
kind: PolicyTest
metadata: {{name: mine}}
spec:
  object: {{apiVersion: v1, kind: Pod, metadata: {{name: x}}, spec: {{containers: []}}}}
  cases:
    - name: a
      expect: {{{text}}}
""",
    )
    done = run("test", "t.yaml")
    assert done.code == (2 if problem else 0)
    assert any(line.startswith(problem) for line in done.err.splitlines()) or not problem


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kind: PolicyTest", "kind: PolicyTests", "unknown kind 'PolicyTests', did you mean `PolicyTest`?"),
        ("spotgate.dev/v1", "spotgate.dev/v2", "expected spotgate.dev/v1, got 'spotgate.dev/v2'"),
        ("name: mine", "name: My Test", "expected up to 63 lower case letters"),
        ("case 1", "case 0", "2 cases are named 'case 0'; give each a name of its own"),
        ("kubernetesVersion: '1.30'", "kubernetesVersion: 1.30", 'write it in quotes, as "1.34": YAML reads 1.3'),
        ("kubernetesVersion: '1.30'", "kubernetesVersion: 1", 'expected a version in quotes, as "1.34"; got 1'),
        ("'1.30'", "1.3O", "kubernetesVersion: '1.3O' is no Kubernetes version; write it as 1.34"),
        ("'1.30'", f"v1.{'9' * 5000}", "t.yaml:17:3: spec.kubernetesVersion: 'v1.99"),
        ("labels:", "label:", "unknown field `label`, did you mean `labels`?"),
        ("team: a", "team: 1", "must be a text, got 1; put it in quotes"),
    ],
)
def test_a_document_that_is_almost_a_test_is_no_pass(run: Run, write: Write, old: str, new: str, problem: str) -> None:
    case = {"expect": expecting("allowed")}
    text = policy_test(case, case, kubernetesVersion="1.30")
    assert old in text
    write("t.yaml", text.replace(old, new))
    done = run("test", "t.yaml")
    assert (done.code, problem in done.err) == (2, True), done.err


def test_nothing_to_test_is_no_pass(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    done = run("test", "policies")
    assert (done.code, done.out) == (2, "")
    assert done.err == "policies: holds no PolicyTest; see spotgate test --help\n"


def test_an_invalid_policy_is_no_pass(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY.replace("domains", "domain"))
    write("policies/tests/t.yaml", policy_test({"expect": expecting("allowed")}))
    done = run("test", "policies")
    assert (done.code, done.out) == (2, "")
    assert "unknown field `domain`, did you mean `domains`?" in done.err


def test_tests_without_policies_are_of_those_that_ship(run: Run, write: Write) -> None:
    write(
        "tests/t.yaml", policy_test({"object": RESERVED, "expect": expecting("allowed")}, policies=["reserved-labels"])
    )
    done = run("test", "tests")
    assert (done.code, done.out) == (0, "1 case against the policies that ship with spotgate: 1 passed\n")
    assert done.err == (
        "tests: warning: holds no policies, so those that ship with spotgate are tested; name others with --policies\n"
    )


def test_tests_may_lie_beside_their_policies_in_one_file(run: Run, write: Write) -> None:
    test = policy_test({"object": RESERVED, "expect": expecting("denied")})
    write("policies/policy.yaml", f"{POLICY}---\n{test}")
    done = run("test", "policies")
    assert (done.code, done.out) == (0, "1 case against policies: 1 passed\n")


def test_policies_elsewhere_are_named(run: Run, write: Write, policies: Path) -> None:
    write("tests/t.yaml", policy_test({"object": RESERVED, "expect": expecting("denied")}))
    done = run("test", "tests", "--policies", policies)
    assert (done.code, done.out) == (0, f"1 case against {policies}: 1 passed\n")


def test_a_golden_file_is_written_and_compared(run: Run, write: Write) -> None:
    write("policies/others.yaml", OTHERS)
    case = {"expect": expecting("allowed", golden="golden/web.yaml")}
    test = write(
        "policies/tests/t.yaml", policy_test(case, object={**POD, **ON_SPOT}, state={"objects": [CPU_SPOT_POOL]})
    )
    golden = test.parent / "golden" / "web.yaml"
    missing = run("test", "policies")
    assert missing.code == 1
    assert f"golden: there is no file {golden}; --update writes it" in missing.out
    assert run("test", "policies", "--update").code == 0
    assert yaml.safe_load(golden.read_text())["spec"]["terminationGracePeriodSeconds"] == 60
    assert run("test", "policies").code == 0
    golden.write_text(golden.read_text().replace("Seconds: 60", "Seconds: 61"))
    changed = run("test", "policies")
    assert changed.code == 1
    assert "-  terminationGracePeriodSeconds: 61\n    +  terminationGracePeriodSeconds: 60\n" in changed.out
    golden.write_text("{")
    broken = run("test", "policies")
    assert (broken.code, "can't be used" in broken.err) == (2, True)


@pytest.mark.parametrize("name", ["../../x.yaml", "../x.yaml", "{folder}/x.yaml", "link/x.yaml"])
def test_a_golden_file_is_not_written_outside_of_the_folder_of_the_test(
    run: Run, write: Write, tmp_path: Path, name: str
) -> None:
    case = {"expect": expecting("allowed", golden=name.format(folder=tmp_path))}
    test = write("a/b/t.yaml", policy_test(case))
    (test.parent / "link").symlink_to(tmp_path)
    write("policies/policy.yaml", POLICY)
    done = run("test", "a", "--policies", "policies", "--update")
    assert done.code == 2
    assert "golden: --update writes only in the folder of the test, a/b, and below it\n" in done.err
    assert not list(tmp_path.rglob("x.yaml"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t.yaml", "t.yaml holds something else than one Pod; remove it, or name another file"),
        ("../policy.yaml", "--update writes only in the folder of the test"),
        ("notes.yaml", "notes.yaml holds something else than one Pod; remove it, or name another file"),
    ],
)
def test_nothing_is_overwritten_that_is_no_golden_file(run: Run, write: Write, name: str, said: str) -> None:
    write("policies/policy.yaml", POLICY)
    write("policies/tests/t.yaml", policy_test({"expect": expecting("allowed", golden=name)}))
    write("policies/tests/notes.yaml", "a: 1\n---\nb: 2\n")
    before = {file: file.read_bytes() for file in Path("policies").rglob("*.yaml")}
    done = run("test", "policies", "--policies", "policies/policy.yaml", "--update")
    assert done.code == 2
    assert said in done.err
    assert {file: file.read_bytes() for file in Path("policies").rglob("*.yaml")} == before


@pytest.mark.parametrize("name", ["golden/web.yaml", "tests/web.yaml", "web.golden"])
def test_a_golden_file_is_not_written_where_it_would_be_read_as_a_policy(run: Run, write: Write, name: str) -> None:
    write("policies/policy.yaml", POLICY)
    write("policies/t.yaml", policy_test({"expect": expecting("allowed", golden=name)}))
    done = run("test", "policies", "--update")
    golden, written = Path("policies", name), name != "golden/web.yaml"
    assert (done.code, golden.exists()) == ((0, True) if written else (2, False))
    text = f"golden: {golden} would be read as a policy, and nothing loads its folder then; write it into a folder `tests`\n"
    assert done.err.endswith(text) is not written
    assert run("test", "policies").code == (0 if written else 1)


def test_each_case_has_a_golden_file_of_its_own(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    expect = expecting("allowed", golden="golden.yaml")
    cases = {"name": "one", "expect": expect}, {"name": "two", "expect": expect, "operation": "UPDATE", "oldObject": {}}
    write("policies/tests/t.yaml", policy_test(*cases))
    done = run("test", "policies", "--update")
    assert done.code == 2
    assert "golden.yaml is what comes of another case (" in done.err
    assert ": one); give this one a file of its own" in done.err


KEYS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")))
"""A key that goes over several lines has no way to be written in YAML that every reader takes."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e3, 1e3, width=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS | st.sampled_from(["y", "on", "0777", "1e3", "null"]), JSON | st.just("off")))
def test_any_object_is_as_in_the_golden_file_that_was_written_for_it(value: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        golden = Path(folder) / "golden.yaml"
        assert golden_difference(golden, value, update=True) == ""
        assert golden_difference(golden, value, update=False) == ""


@given(st.dictionaries(st.text(), JSON), st.dictionaries(st.text(), JSON))
def test_an_object_is_a_part_of_itself_laid_over_any_other(part: dict[str, Any], other: dict[str, Any]) -> None:
    expected = ExpectSpec(outcome=Verdict.ALLOWED, object=_without_nulls(part))
    assert not list(differences(expected, (), {}, {**other, **part}))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def test_example_of_the_page_passes(run: Run, write: Write) -> None:
    page = (SHIPPED.parent / "docs" / "policy-tests.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    write("t.yaml", example)
    done = run("test", "t.yaml")
    assert (done.code, done.out) == (0, "3 cases against the policies that ship with spotgate: 3 passed\n")


def test_coverage_names_what_no_case_reaches(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    write("policies/others.yaml", OTHERS)
    cases = ({"expect": expecting("allowed")}, {"object": RESERVED, "user": "ci", "expect": expecting("allowed")})
    write("policies/tests/t.yaml", policy_test(*cases, policies=["labels"]))
    done = run("test", "policies", "--coverage", "-o", "json")
    assert done.code == 0
    covered = {each["policy"]: each for each in done.json["coverage"]}
    assert set(covered) == {"labels", "fallback", "termination", "placement"}
    labels = covered["labels"]
    assert (labels["file"], labels["line"], labels["acted"], labels["passed"]) == ("policies/policy.yaml", 3, 0, 2)
    assert labels["unreached"] == [
        "no case makes it act",
        "no case has it look at UPDATE",
        "no case is exempt by exempt[0]: they own it",
    ]
    assert "no case has an object that it leaves alone" in covered["fallback"]["unreached"]
    shown = run("test", "policies", "--coverage").out
    assert "  labels       ReservedLabels: acts 0, leaves alone 2\n" in shown
    assert "    policies/policy.yaml:3: no case is exempt by exempt[0]: they own it\n" in shown


EXEMPTION = """\
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {name: moving}
spec: {policies: [labels, placement], users: [jo], reason: they move}
"""


@pytest.mark.parametrize(("user", "told"), [("jo", 0), ("jane", 1)])
def test_an_exemption_from_several_policies_needs_one_case_and_is_told_once(
    run: Run, write: Write, user: str, told: int
) -> None:
    write("policies/policy.yaml", POLICY)
    write("policies/others.yaml", OTHERS)
    write("policies/exemption.yaml", EXEMPTION)
    case = {"object": RESERVED, "user": user, "expect": expecting("allowed" if user == "jo" else "denied")}
    write("policies/tests/t.yaml", policy_test(case, policies=["labels"]))
    done = run("test", "policies", "--coverage", "-o", "json")
    unreached = [text for each in done.json["coverage"] for text in each["unreached"]]
    assert unreached.count("no case is exempt by Exemption moving: they move") == told


VALIDATION = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: own}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]}
  validations:
    - expression: object.metadata.name != 'a'
    - expression: object.metadata.name != 'b'
    - expression: object.metadata.name != 'c'
"""


def test_coverage_names_rules_that_always_hold(run: Run, write: Write) -> None:
    write("policies/own.yaml", VALIDATION)
    cases = [
        {"object": {"metadata": {"name": "a"}}, "expect": expecting("denied")},
        {"object": {"metadata": {"name": "c"}}, "expect": expecting("denied")},
        {"expect": expecting("allowed")},
    ]
    write("policies/tests/own.yaml", policy_test(*cases))
    assert run("test", "--coverage", "policies").out == (
        "Coverage: how many cases a policy acts in, and how many objects it leaves alone\n"
        "  own  Validation: acts 2, leaves alone 1\n"
        "    policies/own.yaml:3: no case has a finding of validations[1]\n"
        "\n"
        "3 cases against policies: 3 passed\n"
    )
    write("policies/tests/own.yaml", policy_test(cases[2]))
    assert "no case has a finding" not in run("test", "--coverage", "policies").out


PARTS = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: own}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]}
  breakGlass: {groups: [sre]}
  matchConditions:
    - {name: named, expression: object.metadata.name != 'b'}
    - {name: ours, expression: object.metadata.name != 'c'}
  validations:
    - expression: object.metadata.name != 'a'
---
apiVersion: spotgate.dev/v1
kind: NodePoolRules
metadata: {name: pools}
spec:
  resources:
    - group: compute.coreweave.com
      resource: nodepools
      fields:
        - {path: spec.targetNodes, type: integer}
        - {path: spec.minNodes, type: integer}
      checks:
        - {when: spec.minNodes, fields: [spec.minNodes], message: never, enforcement: "off"}
        - {when: spec.region, fields: [spec.region], message: no region}
        - {when: spec.zone, fields: [spec.zone], message: no zone}
---
apiVersion: spotgate.dev/v1
kind: EvictionStrategy
metadata: {name: eviction}
spec:
  findings: {gracePeriod: "off", bypassed: warn, sunkTolerations: "off", interruptedState: "off"}
"""
PARTLY = ("no case has a finding of", "no case is left out", "no case overrules")
BOTH = {"qos.coreweave.cloud/interruptable": "true", "qos.coreweave.com/graceful-interruptible": "true"}
EMERGENCY = {"name": "a", "annotations": {"spotgate.dev/break-glass": "fire"}}


def test_coverage_names_the_parts_of_a_policy_that_no_case_reaches(run: Run, write: Write) -> None:
    write("policies/own.yaml", PARTS)
    pool = {**SPOT_POOL["spec"], "targetNodes": "2", "region": "here"}
    cases = [
        {"object": {"metadata": {"name": "a"}}, "expect": expecting("denied")},
        {"object": {"metadata": {"name": "b"}}, "expect": expecting("allowed")},
        {"object": {"metadata": {"labels": BOTH}}, "expect": expecting("warned")},
        {"object": {**SPOT_POOL, "spec": pool}, "expect": expecting("denied", policies=["pools"])},
    ]

    def unreached(*cases: dict[str, Any]) -> dict[str, list[str]]:
        write("policies/tests/own.yaml", policy_test(*cases))
        done = run("test", "--coverage", "policies", "-o", "json")
        assert (done.code, done.err) == (0, "")
        return {
            each["policy"]: [text for text in each["unreached"] if text.startswith(PARTLY)]
            for each in done.json["coverage"]
        }

    assert unreached(*cases) == {
        "own": ["no case is left out by matchConditions[1] ours", "no case overrules it by breakGlass"],
        "pools": [
            "no case has a finding of resources[0].fields[1] spec.minNodes",
            "no case has a finding of resources[0].checks[2] spec.zone",
        ],
        "eviction": ["no case has a finding of findings.bypassed", "no case has a finding of findings.noEffect"],
    }
    more = [
        {"name": "c", "object": {"metadata": {"name": "c"}}, "expect": expecting("allowed")},
        {"name": "glass", "groups": ["sre"], "object": {"metadata": EMERGENCY}, "expect": expecting("warned")},
    ]
    assert unreached(*cases, *more)["own"] == []


def test_breaking_glass_in_vain_overrules_nothing(run: Run, write: Write) -> None:
    write("policies/own.yaml", PARTS)
    case = {"groups": ["others"], "object": {"metadata": EMERGENCY}, "expect": expecting("denied")}
    write("policies/tests/own.yaml", policy_test(case))
    assert "no case overrules it by breakGlass" in run("test", "--coverage", "policies").out


def test_control_characters_of_a_test_do_not_reach_the_terminal(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    case = {"name": "red \x1b[31m", "expect": expecting("denied", messages=["\x1b[2J"])}
    write("policies/t.yaml", policy_test(case))
    done = run("test", "policies")
    assert done.code == 1
    assert "FAILED  mine: red  [31m" in done.out
    assert "\x1b" not in done.out


def test_texts_of_a_test_are_no_commands_for_the_runner_and_turn_no_line_around(run: Run, write: Write) -> None:
    command = "one\n::error title=x::injected\ntwo"
    write("policies/policy.yaml", POLICY.replace("they own it", json.dumps(command)))
    write(
        "policies/tests/g.yaml", yaml.safe_dump({**POD, "metadata": {"name": "web", "annotations": {"note": command}}})
    )
    pod = {**POD, "metadata": {"name": "web", "annotations": {"note": f"{command} again"}}}
    case = {"name": f"right to left \u202e {command}", "expect": expecting("denied", golden="g.yaml")}
    write("policies/tests/t.yaml", policy_test(case, object=pod))
    done = run("test", "--coverage", "policies")
    assert done.code == 1
    assert done.out.splitlines()[0].endswith("FAILED  mine: right to left   one ::error title=x::injected two")
    assert not [line for line in done.out.splitlines() if line.lstrip().startswith("::")]
    assert "\u202e" not in done.out


@pytest.mark.parametrize("command", ["check", "explain", "test"])
def test_control_characters_of_a_file_name_do_not_reach_the_terminal(run: Run, write: Write, command: str) -> None:
    write("d/re\x1b[31md.yaml", "a: [b")
    done = run(command, "d")
    assert done.code == 2
    assert done.err.startswith("d/re [31md.yaml:2:1: ")
    assert "\x1b" not in done.err


def test_junit_has_a_case_for_each(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    cases = (
        {"expect": expecting("allowed")},
        {"expect": expecting("denied", messages=["\x00"])},
        {"operation": "UPDATE", "expect": expecting("allowed")},
    )
    write("policies/tests/t.yaml", policy_test(*cases))
    write("policies/tests/u.yaml", policy_test())
    done = run("test", "policies", "-o", "junit")
    assert done.code == 2
    suites = ET.fromstring(done.out.partition("\n")[2])  # noqa: S314 - our own
    counts = [[suite.get(key) for key in ("name", "tests", "failures", "errors")] for suite in suites]
    assert counts == [["policies/tests/t.yaml", "3", "1", "1"], ["policies/tests/u.yaml", "1", "0", "1"]]
    assert [suites.get(key) for key in ("tests", "failures", "errors")] == ["4", "1", "2"]
    times = [float(case.get("time", "")) for case in suites[0]]
    assert min(times) > 0
    assert sum(times) == pytest.approx(float(suites.get("time", "")), abs=1e-5)
    assert [[part.tag for part in case] for case in suites[0]] == [[], ["failure"], ["error"]]
    assert [case.get("name") for case in suites[0]] == ["mine: case 0", "mine: case 1", "mine: case 2"]


def _watching(stdout: Any) -> subprocess.Popen[str]:
    program = "import sys; from webhook.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", program, "test", "--watch", "policies"],
        env={**os.environ, "PYTHONPATH": str(SHIPPED.parent)},
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_watching_runs_again_when_a_file_changes(write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    test = write("policies/tests/t.yaml", policy_test({"expect": expecting("allowed")}))
    with _watching(subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "1 case against policies: 1 passed\n"
            assert process.stdout.readline() == "Waiting for changes in policies ...\n"
            # The watch begins after that line: the file is changed until it has been seen.
            lines = _until_seen(process.stdout, test)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    assert lines[0].startswith("policies/tests/t.yaml:")
    assert lines[-1] == "1 case against policies: 1 failed\n"


@pytest.mark.parametrize("name", ["output.txt", "tests/output.json"])
def test_watching_does_not_see_what_it_prints_itself(write: Write, name: str) -> None:
    write("policies/policy.yaml", POLICY)
    test = write("policies/tests/t.yaml", policy_test({"expect": expecting("allowed")}))
    output = write(f"policies/{name}", "")
    changes = 0
    with output.open("w") as file, _watching(file) as process:
        try:
            while output.read_text().count("Waiting") < 2 and changes < 60:
                time.sleep(1)
                changes += 1
                test.write_text(policy_test({"name": f"change {changes}", "expect": expecting("allowed")}))
            time.sleep(2)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    assert 2 <= output.read_text().count("Waiting") <= changes + 1


def _until_seen(stream: Any, test: Path) -> list[str]:
    """Change the test every second until something is said; what is."""
    for number in range(60):
        test.write_text(policy_test({"name": f"change {number}", "expect": expecting("denied")}))
        if select.select([stream], [], [], 1.0)[0]:
            break
    lines = [stream.readline()]
    while not lines[-1].startswith("1 case"):
        lines.append(stream.readline())
        assert lines[-1]
    return lines
