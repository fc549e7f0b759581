"""``check -o gitlab``: the members that GitLab's Code Quality reads, and a fingerprint that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cli.conftest import POD, SPOT_POOL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Write


TWO_LABELS = POD.replace("team: a", 'team: a\n    example.com/owner: "b"')


def issues(run: Run, policies: Path, *paths: str | Path) -> Any:
    return run("check", "-o", "gitlab", "--policies", policies, *paths).json


def test_an_issue_for_each_finding_on_its_line(run: Run, write: Write, policies: Path) -> None:
    file = write("deploy/pod.yaml", f"# comment\n{POD}")

    (issue,) = issues(run, policies, "deploy")

    assert issue == {
        "description": "Pod web: label example.com/team is in the reserved domain example.com. "
        + issue["description"].partition("example.com. ")[2],
        "check_name": "reserved-labels/reserved",
        "fingerprint": issue["fingerprint"],
        "severity": "critical",
        "location": {"path": "deploy/pod.yaml", "lines": {"begin": 7}},
    }
    assert issues(run, policies, file.absolute())[0]["location"] == issue["location"]


def test_nothing_found_is_an_empty_report(run: Run, write: Write, policies: Path) -> None:
    assert issues(run, policies, write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")) == []


def test_fingerprints_are_all_different_and_stay_when_lines_move(run: Run, write: Write, policies: Path) -> None:
    file = write("pod.yaml", f"{TWO_LABELS}---\n{TWO_LABELS}")
    before = [issue["fingerprint"] for issue in issues(run, policies, file)]
    write("pod.yaml", f"# a line more\n{TWO_LABELS}---\n# and here\n{TWO_LABELS}")
    assert [issue["fingerprint"] for issue in issues(run, policies, file)] == before
    assert len(set(before)) == len(before) == 4


def test_what_outcomes_weigh(run: Run, write: Write, policies: Path) -> None:
    found = issues(run, policies, "--partial", write("pod.yaml", f"{POD}---\n{SPOT_POOL}"))
    assert {(issue["check_name"], issue["severity"]) for issue in found} == {
        ("reserved-labels/reserved", "critical"),
        ("on-demand-fallback/pools-unknown", "minor"),
    }


def test_a_file_that_can_not_be_read_is_a_blocker(run: Run, write: Write, policies: Path) -> None:
    write("bad.yaml", "a: [\n")
    (issue,) = issues(run, policies, "bad.yaml", "nowhere.yaml")[:1]
    assert (issue["severity"], issue["location"]) == ("blocker", {"path": "bad.yaml", "lines": {"begin": 2}})
    missing = issues(run, policies, "nowhere.yaml")[0]
    assert missing["location"] == {"path": "nowhere.yaml", "lines": {"begin": 1}}
    assert missing["description"].startswith("can't be judged: can't be read: No such file")


def test_an_issue_is_one_line_whatever_its_fix_shows(run: Run, write: Write) -> None:
    pod = POD.replace("  labels:\n    example.com/team: a\n", "  labels: {spotgate.dev/capacity: spot}\n")
    found = run("check", "-o", "gitlab", write("pod.yaml", pod)).json
    assert found
    assert not [issue for issue in found if "\n" in issue["description"]]


def test_a_hint_ends_its_sentence(run: Run, write: Write) -> None:
    name = SPOT_POOL.partition("name: ")[2].split()[0].strip("{},")
    pod = POD.replace("metadata:", f"metadata:\n  annotations: {{spotgate.dev/node-pool: {name}t}}", 1)
    write("deploy/all.yaml", f"{pod}\n---\n{SPOT_POOL}")
    texts = [each["description"] for each in run("check", "-o", "gitlab", "deploy").json]
    assert any(f"did you mean `{name}`? Name one of these pools" in text for text in texts), texts
    assert not [text for text in texts if "?." in text]
