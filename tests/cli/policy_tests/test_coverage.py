"""``spotgate test --coverage`` names what no case reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.policy_tests.documents import OTHERS, POLICY, RESERVED, SPOT_POOL, expecting, policy_test

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


def test_coverage_names_what_no_case_reaches(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    write("policies/others.yaml", OTHERS)
    cases = ({"expect": expecting("allowed")}, {"object": RESERVED, "user": "ci", "expect": expecting("allowed")})
    write("policies/tests/t.yaml", policy_test(*cases, policies=["labels"]))
    done = run("test", "policies", "--coverage", "-o", "json")
    assert done.code == 0
    covered = {each["policy"]: each for each in done.json["coverage"]}
    assert set(covered) == {"labels", "fallback", "graceful-termination", "spot-placement"}
    labels = covered["labels"]
    assert (labels["file"], labels["line"], labels["acted"], labels["passed"]) == ("policies/policy.yaml", 3, 0, 2)
    assert labels["unreached"] == [
        "no case makes it act",
        "no case has it look at UPDATE",
        "no case is exempt by exempt[0]: they own it",
    ]
    assert "no case has an object that it leaves alone" in covered["fallback"]["unreached"]
    shown = run("test", "policies", "--coverage").out
    assert "  labels                ReservedLabels: acts 0, leaves alone 2\n" in shown
    assert "    policies/policy.yaml:3: no case is exempt by exempt[0]: they own it\n" in shown


EXEMPTION = """\
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {name: moving}
spec: {policies: [labels, spot-placement], users: [jo], reason: they move}
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
