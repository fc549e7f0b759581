"""Run scenarios/*.yaml: files, a command line, and the expected result.

In an expected text, `…` matches any text. File content is a text, the name of a manifest, a manifest with some of
its text replaced, as in `POD: {web: shop}`, or a list of these, one for each document.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from tests.cli import conftest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cli.conftest import Done, Run, Write

Content = str | list[Any] | dict[str, dict[str, str]]


class Step(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One command with its files and expected result.

    Attributes:
        files: contents of the files to write.
        edit: replacements of text by file.
        sh: shell commands to run first.
        folder: the working directory for this and later steps.
        env: environment variables for this and later steps.
        check: arguments of `spotgate check -o json` with the policies of tests/cli/conftest.py.
        run: arguments of another command.
        stdin: standard input, as file content.
        code: the exit code; by default 1 if an object is denied, and 0 otherwise.
        outcomes: "policy outcome" of each result.
        results: fields of each result.
        unreadable: fields of each file that can't be evaluated.
        patches: names of the changed objects.
        summary: fields of the summary.
        out: the standard output, or texts in it.
        err: the standard error, or texts in it; empty by default.
        lacks: texts in neither of them.
        after: contents of files at the end.
    """

    files: dict[str, Content] = {}
    edit: dict[str, dict[str, str]] = {}
    sh: str = ""
    folder: str = "."
    env: dict[str, str] = {}
    check: str | None = None
    run: str | None = None
    stdin: Content = ""
    code: int | None = None
    outcomes: list[str] | None = None
    results: list[dict[str, Any]] | None = None
    unreadable: list[dict[str, Any]] | None = None
    patches: list[str] | None = None
    summary: dict[str, int] = {}
    out: str | list[str] = []
    err: str | list[str] = ""
    lacks: list[str] = []
    after: dict[str, Content] = {}


class Scenario(Step, kw_only=True):
    """The first step of a scenario, and later steps in the same folder."""

    name: str
    then: list[Step] = []


class Scenarios(msgspec.Struct, forbid_unknown_fields=True):
    """A file of scenarios with named manifests and common files."""

    scenarios: list[Scenario]
    manifests: dict[str, Content] = {}
    files: dict[str, Content] = {}
    sh: str = ""


SCENARIOS = {
    file.stem: msgspec.convert(yaml.safe_load(file.read_text()), Scenarios)
    for file in sorted(Path(__file__).with_name("scenarios").glob("*.yaml"))
}
SHARED: dict[str, Content] = {
    name: value for name, value in vars(conftest).items() if name.isupper() and isinstance(value, str)
}


@pytest.mark.parametrize(
    ("file", "scenario"),
    [pytest.param(file, scenario, id=scenario.name) for file, one in SCENARIOS.items() for scenario in one.scenarios],
)
def test_scenario(
    run: Run, write: Write, policies: Path, monkeypatch: pytest.MonkeyPatch, file: str, scenario: Scenario
) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    for name in ("NAME", "EMAIL"):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", "x")
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", "x")
    shared = SCENARIOS[file]
    manifests = SHARED | shared.manifests
    for step in (Step(files=shared.files, sh=shared.sh), scenario, *scenario.then):
        _prepare(step, write, manifests)
        monkeypatch.chdir(step.folder)
        for name, value in step.env.items():
            monkeypatch.setenv(name, value)
        stdin = text_of(step.stdin, manifests).encode()
        if step.check is not None:
            done = run("check", "-o", "json", "--policies", policies, *shlex.split(step.check), stdin=stdin)
        elif step.run is not None:
            done = run(*shlex.split(step.run), stdin=stdin)
        else:
            continue
        _compare(step, done, manifests)


def _prepare(step: Step, write: Write, manifests: Mapping[str, Content]) -> None:
    for name, content in step.files.items():
        write(name, text_of(content, manifests))
    for name, changes in step.edit.items():
        write(name, _replaced(Path(name).read_text(), changes))
    if step.sh:
        subprocess.run(["/bin/sh", "-euc", step.sh], check=True, capture_output=True)


def text_of(content: Content, manifests: Mapping[str, Content]) -> str:
    """Return the text of a file."""
    match content:
        case str():
            return text_of(manifests[content], manifests) if content in manifests else content
        case list():
            return "---\n".join(text_of(part, manifests) for part in content)
        case dict():
            ((name, changes),) = content.items()
            return _replaced(text_of(name, manifests), changes)


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"{old!r} is not in {text!r}"
        text = text.replace(old, new)
    return text


def _compare(step: Step, done: Done, manifests: Mapping[str, Content]) -> None:
    _assert_said(step.err, done.err)
    _assert_said(step.out, done.out)
    assert [text for text in step.lacks if re.search(_pattern(text), done.out + done.err, re.DOTALL)] == []
    if step.outcomes is not None:
        assert [" ".join(pair) for pair in done.outcomes] == step.outcomes
    if step.results is not None:
        _assert_fields(step.results, done.json["results"])
    if step.unreadable is not None:
        _assert_fields(step.unreadable, done.json["unreadable"])
    if step.patches is not None:
        assert [patch["name"] for patch in done.json["patches"]] == step.patches
    assert step.summary.items() <= (done.json["summary"].items() if step.summary else set())
    outcomes = {*(step.outcomes or ()), *(f" {result.get('outcome')}" for result in step.results or ())}
    code = any(outcome.endswith(" deny") for outcome in outcomes) if step.code is None else step.code
    assert done.code == code
    for name, content in step.after.items():
        assert Path(name).read_text() == text_of(content, manifests)


def _assert_fields(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> None:
    assert len(expected) == len(actual), actual
    for fields, value in zip(expected, actual, strict=True):
        for name, field in fields.items():
            _assert_said(field, value[name]) if isinstance(field, str) else _assert_equal(field, value[name])


def _assert_equal(expected: object, value: object) -> None:
    assert value == expected


def _assert_said(expected: str | list[str], text: str) -> None:
    """Assert that a text equals the expected one, or contains all of a list."""
    if isinstance(expected, list):
        assert [part for part in expected if not re.search(_pattern(part), text, re.DOTALL)] == [], text
    else:
        assert re.fullmatch(_pattern(expected.rstrip("\n")), text.rstrip("\n"), re.DOTALL), f"{expected}\n\n{text}"


def _pattern(expected: str) -> str:
    return ".*".join(map(re.escape, expected.split("…")))
