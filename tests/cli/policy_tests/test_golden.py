"""``spotgate test``: golden files hold the results, and no other file is overwritten."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.policy_tests.documents import CPU_SPOT_POOL, ON_SPOT, OTHERS, POD, POLICY, expecting, policy_test
from webhook.commands.test.case import differences, golden_difference
from webhook.model.decision import Verdict
from webhook.policy.policy_test import ExpectSpec

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


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
def test_a_golden_file_is_not_written_outside_the_folder_of_the_test(
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
    ("name", "error"),
    [
        ("t.yaml", "t.yaml contains something other than one Pod; remove it, or name another file"),
        ("../policy.yaml", "--update writes only in the folder of the test"),
        ("notes.yaml", "notes.yaml contains something other than one Pod; remove it, or name another file"),
    ],
)
def test_only_golden_files_are_overwritten(run: Run, write: Write, name: str, error: str) -> None:
    write("policies/policy.yaml", POLICY)
    write("policies/tests/t.yaml", policy_test({"expect": expecting("allowed", golden=name)}))
    write("policies/tests/notes.yaml", "a: 1\n---\nb: 2\n")
    before = {file: file.read_bytes() for file in Path("policies").rglob("*.yaml")}
    done = run("test", "policies", "--policies", "policies/policy.yaml", "--update")
    assert done.code == 2
    assert error in done.err
    assert {file: file.read_bytes() for file in Path("policies").rglob("*.yaml")} == before


KEYS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")))
"""No YAML form of a multiline key is accepted by every parser."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e3, 1e3, width=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS | st.sampled_from(["y", "on", "0777", "1e3", "null"]), JSON | st.just("off")))
def test_any_object_matches_its_golden_file(value: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        golden = Path(folder) / "golden.yaml"
        assert golden_difference(golden, value, update=True) == ""
        assert golden_difference(golden, value, update=False) == ""


@given(st.dictionaries(st.text(), JSON), st.dictionaries(st.text(), JSON))
def test_an_object_is_a_subset_of_itself_merged_over_another(part: dict[str, Any], other: dict[str, Any]) -> None:
    expected = ExpectSpec(outcome=Verdict.ALLOWED, object=_without_nulls(part))
    assert not list(differences(expected, (), {}, {**other, **part}))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value


# Output


def test_control_characters_of_a_test_do_not_reach_the_terminal(run: Run, write: Write) -> None:
    write("policies/policy.yaml", POLICY)
    case = {"name": "red \x1b[31m", "expect": expecting("denied", messages=["\x1b[2J"])}
    write("policies/t.yaml", policy_test(case))
    done = run("test", "policies")
    assert done.code == 1
    assert "FAILED  mine: red  [31m" in done.out
    assert "\x1b" not in done.out


def test_test_texts_are_no_runner_commands_and_reverse_no_line(run: Run, write: Write) -> None:
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


def test_junit_has_one_case_per_test_case(run: Run, write: Write) -> None:
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
