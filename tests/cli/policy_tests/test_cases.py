"""``spotgate test``: cases pass and fail for the right reasons, and what makes no sense is never a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cli.policy_tests.documents import (
    CPU_SPOT_POOL,
    ON_DEMAND_POOL,
    ON_SPOT,
    OTHERS,
    POD,
    POLICY,
    RESERVED,
    SPOT_POOL,
    expecting,
    policy_test,
)
from tests.pages import blocks
from webhook.engine.bundle import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run, Write


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


@pytest.mark.parametrize(
    ("enforcement", "expected", "passes"),
    [
        ("deny", {"outcome": "denied"}, False),
        ("warn", {"outcome": "warned"}, False),
        ("deny", {"outcome": "denied", "ids": ["validation/error"]}, True),
        ("deny", {"outcome": "denied", "ids": ["validation/error", "reserved-labels/reserved"]}, True),
        ("warn", {"outcome": "denied"}, True),  # by ReservedLabels
    ],
)
def test_a_rule_that_fails_to_evaluate_is_not_the_rule_that_a_case_expects(
    run: Run,
    write: Write,
    enforcement: str,
    expected: dict[str, Any],
    passes: bool,  # noqa: FBT001
) -> None:
    rule = {
        "apiVersion": "spotgate.dev/v1",
        "kind": "Validation",
        "metadata": {"name": "fails"},
        "spec": {
            "enforcement": enforcement,
            "match": {"resourceRules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}]},
            "validations": [{"expression": "object.metadata.labels['size'] == 's'"}],
        },
    }
    write("policies/fails.yaml", yaml.safe_dump(rule))
    reserved = len(expected.get("ids", ())) > 1 or (enforcement, expected["outcome"]) == ("warn", "denied")
    write("policies/policy.yaml", POLICY)
    write("policies/tests/mine.yaml", policy_test({"object": RESERVED if reserved else POD, "expect": expected}))
    done = run("test", "policies", "-o", "json")
    assert done.out, done.err
    (case,) = done.json["cases"]
    texts = [said["text"] for said in (*case["mismatches"], *case["problems"])]
    because = "expression failed: no such key: size"
    fix = "correct the expression, or name the id in `ids`"
    only = f"{expected['outcome']} only by validation/error: {because}; {fix}"
    assert texts == ([] if passes else [only])


def test_all_that_came_out_differently_is_said_at_its_line(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    text = policy_test(
        {
            "object": RESERVED,
            "expect": {
                "outcome": "warned",
                "policies": [],
                "ids": ["spot-placement/no-pool-fits"],
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
        f"{file}:{lines['ids:']}: ids: expected spot-placement/no-pool-fits, got reserved-labels/reserved",
        f"{file}:{lines['- no such text']}: messages[1]: no finding says 'no such text'",
        f"{file}:{lines['changed: true']}: changed: the object is not changed",
        f'{file}:{lines["team: b"]}: object.metadata.labels.team: expected "b", got "a"',
        f'{file}:{lines["example.com/x: null"]}: object.metadata.labels["example.com/x"]: expected none, got "b"',
        f'{file}:{lines["spec: 1"]}: object.spec: expected 1, got {{"containers": [{{"name": "main", "image": "busybox"}}]}}',
        "    What was found:",
        '      deny: [labels] label example.com/x is in the reserved domain example.com (at metadata.labels["example.com/x"]) [reserved-labels/reserved]',
        "        The platform reserves labels in example.com and its subdomains, and rejects those that users set.",
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
        policies=["graceful-termination", "fallback"],
    )
    assert (code, said) == (0, [[], []])


def test_state_is_read_beside_the_file(tested: Callable[..., Any], write: Write) -> None:
    write("policies/tests/state/pools.yaml", yaml.safe_dump(ON_DEMAND_POOL))
    case = {"object": SPOT_POOL, "expect": expecting("allowed")}
    assert tested({**case, "state": {"files": ["state/pools.yaml"]}}) == (0, [[]])
    code, said = tested({**case, "state": {"files": ["pools.yaml"]}})
    assert (code, said) == (2, [["can't be read: No such file or directory", "can't be read, see there"]])


CKS = {"objects": [SPOT_POOL]}


def test_labels_of_the_namespace_are_known(tested: Callable[..., Any]) -> None:
    labels = {"ns.coreweave.cloud/org": "control-plane"}
    code, said = tested(
        {"namespace": {"name": "infra", "labels": labels}, "expect": expecting("allowed"), "state": CKS},
        {"namespace": {"name": "infra"}, "expect": expecting("denied"), "state": CKS},
        object={**POD, **RESERVED},
    )
    assert (code, said) == (0, [[], []])


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"operation": "CREATE", "oldObject": {}}, "there is none before a CREATE; remove it, or write UPDATE"),
        ({"operation": "UPDATE"}, "UPDATE needs `oldObject`"),
        ({"object": {"kind": None}}, "is no Kubernetes object: it has no `kind`"),
        ({"object": {"metadata": {"name": {}}}}, "expected text, got a map"),
        ({"object": {}, "oldObject": {"metadata": {"namespace": []}}}, "expected text, got a list"),
        ({"state": {"objects": [{**POD, "metadata": {"labels": []}}]}}, "expected a map, got a list"),
        ({"object": {"kind": "Pdo"}}, "nothing says which resource kind Pdo of v1 is"),
        ({"object": {"kind": "Deployment"}}, "v1 has no kind Deployment; did you mean apiVersion: apps/..."),
        ({"object": {"spec": {"containers": "x"}}}, "the object can't be read"),
        ({"policies": ["lables"]}, "there is no policy 'lables', or it is off, did you mean `labels`?"),
        ({"policies": ["eviction"]}, "there is no policy 'eviction', or it is off"),
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
        ("outcome: allowed, changed: 1", "t.yaml:8:34: spec.cases[0].expect.changed: must be true or false"),
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
        ("kubernetesVersion: '1.30'", "kubernetesVersion: 1.30", 'write the version in quotes, as "1.34"; got 1.3'),
        ("kubernetesVersion: '1.30'", "kubernetesVersion: 1", 'write the version in quotes, as "1.34"; got 1'),
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


def test_example_of_the_page_passes(run: Run, write: Write) -> None:
    (example,) = blocks(SHIPPED.parent / "docs" / "policy-tests.md", "yaml")
    write("t.yaml", example)
    done = run("test", "t.yaml")
    assert (done.code, done.out) == (0, "3 cases against the policies that ship with spotgate: 3 passed\n")
