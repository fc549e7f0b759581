"""``spotgate test``: cases pass and fail for the right reasons, and invalid cases never pass."""

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
from tests.docs.pages import blocks
from webhook.engine.bundle import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run, Write


@pytest.fixture
def tested(run: Run, write: Write) -> Callable[..., Any]:
    """Return a function that runs cases against three policies and returns the exit code and each case's problems."""
    write("policies/policy.yaml", POLICY)
    write("policies/others.yaml", OTHERS)

    def tested(*cases: dict[str, Any], **shared: Any) -> tuple[int, list[list[str]]]:
        write("policies/tests/mine.yaml", policy_test(*cases, **shared))
        done = run("test", "policies", "-o", "json")
        assert done.out, done.err
        return done.code, [[item["text"] for item in (*c["mismatches"], *c["problems"])] for c in done.json["cases"]]

    return tested


def test_shipped_policies_pass_their_tests_and_have_positive_and_negative_cases(run: Run) -> None:
    done = run("test", SHIPPED, "--coverage", "-o", "json")
    assert (done.code, done.err) == (0, "")
    unreached = {policy["policy"]: policy["unreached"] for policy in done.json["coverage"]}
    assert [missing for missing in unreached.values() if missing] == []
    kinds = [yaml.safe_load_all(file.read_text()) for file in SHIPPED.glob("*.yaml")]
    named = {item["metadata"]["name"] for file in kinds for item in file if "metadata" in item}
    assert set(unreached) == named - {"workloads"}


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
def test_an_evaluation_error_does_not_satisfy_an_expected_finding(
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
    texts = [item["text"] for item in (*case["mismatches"], *case["problems"])]
    because = "expression failed: no such key: size"
    fix = "correct the expression, or name the id in `ids`"
    only = f"{expected['outcome']} only by validation/error: {because}; {fix}"
    assert texts == ([] if passes else [only])


def test_every_mismatch_is_reported_at_its_line(run: Run, write: Write) -> None:
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
        "    Findings:",
        '      deny: [labels] label example.com/x is in the reserved domain example.com (at metadata.labels["example.com/x"]) [reserved-labels/reserved]',
        "        The platform rejects labels that users set in example.com and its subdomains.",
        "        Fix: remove the label, or use your own domain, such as example.com/x",
        "",
        "1 case against policies: 1 failed",
    ]


@pytest.mark.parametrize(
    ("expected", "starts"),
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
def test_object_is_a_subset_of_the_result(
    tested: Callable[..., Any], expected: dict[str, Any], starts: list[str]
) -> None:
    pod = {**ON_SPOT, "spec": {"containers": [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}]}]}}
    state = {"objects": [CPU_SPOT_POOL]}
    expect = expecting("allowed", changed=True, object=expected)
    code, texts = tested({"object": pod, "state": state, "expect": expect})
    assert code == bool(starts)
    assert [text[: len(start)] for text, start in zip(texts[0], starts, strict=True)] == starts


def test_state_paths_are_relative_to_the_file(tested: Callable[..., Any], write: Write) -> None:
    write("policies/tests/state/pools.yaml", yaml.safe_dump(ON_DEMAND_POOL))
    case = {"object": SPOT_POOL, "expect": expecting("allowed")}
    assert tested({**case, "state": {"files": ["state/pools.yaml"]}}) == (0, [[]])
    code, texts = tested({**case, "state": {"files": ["pools.yaml"]}})
    assert (code, texts) == (2, [["can't be read: No such file or directory", "can't be read, see there"]])


def test_the_example_on_the_page_passes(run: Run, write: Write) -> None:
    (example,) = blocks(SHIPPED.parent / "docs" / "policy-tests.md", "yaml")
    write("t.yaml", example)
    done = run("test", "t.yaml")
    assert (done.code, done.out) == (0, "3 cases against the policies that ship with spotgate: 3 passed\n")
