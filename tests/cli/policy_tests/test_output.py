"""``spotgate test``: what it prints, for whom, and how often."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.cli.policy_tests.documents import POD, POLICY, expecting, policy_test

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


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
    write("d/re\x1b[31md.yaml", "apiVersion: v1\nkind: Pod\na: [b")
    done = run(command, "d")
    assert done.code == 2
    assert done.err.startswith("d/re [31md.yaml:4:1: ")
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
