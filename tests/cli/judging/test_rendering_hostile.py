"""Discovered folders are rendered: only roots, each object once, and nothing that an attacker could misuse."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cli.conftest import POD
from tests.cli.judging.test_rendering import CHART, program
from tests.cli.test_scenarios import text_of
from webhook.formats import FORMATS
from webhook.inputs import rendering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Check, Run, Write

MANIFESTS = {"POD": POD, "CHART": CHART.format("c")}
REPOSITORIES = yaml.safe_load(Path(__file__).with_name("repositories.yaml").read_text())
REPOSITORIES["a folder whose name is no UTF-8"] = {
    "files": {"a\udcff/kustomization.yaml": "resources: [p.yaml]", "a\udcff/p.yaml": "POD"},
    "judged": ["web"],
    "problem": r"a\\udcff/kustomization.yaml: can't be rendered",
}


@pytest.fixture
def repository(tmp_path: Path, kustomize: Path, helm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty repository, the working directory, next to a folder with a secret."""
    monkeypatch.setenv("PATH", f"{kustomize.parent}{os.pathsep}{helm.parent}")
    write_repository(tmp_path, {"outside/secret": "s", "outside/kustomization.yaml": "{}", "repo/empty.json": ""})
    monkeypatch.chdir(tmp_path / "repo")
    return Path()


@pytest.mark.parametrize("name", REPOSITORIES)
def test_repository(check: Check, repository: Path, listener: Listener, name: str) -> None:
    expected = REPOSITORIES[name]
    texts = {file: text_of(content, MANIFESTS) for file, content in expected["files"].items()}
    write_repository(repository, {file: text.replace("{port}", str(listener.port)) for file, text in texts.items()})
    done = check(".")
    assert sorted(result["name"] for result in done.json["results"]) == expected["judged"]
    problem = expected.get("problem")
    assert re.search(problem, done.err, re.DOTALL) if problem else not done.err
    assert done.code == (2 if problem else 1)
    assert not listener.asked()


class Listener:
    """A port on loopback that records whether a program connected to it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0)
        self.port = self._socket.getsockname()[1]

    def asked(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    with closing(Listener()) as listening:
        yield listening


def write_repository(top: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text.removeprefix("-> "))
        else:
            path.write_text(text)


PROGRAMS = {
    "endless output": ("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", "OUTPUT", "prints more than"),
    "endless run": ("/bin/sleep 600 & wait", "SECONDS", "it did not end within 1 s"),
    "it fails": ("echo no >&2; exit 3", "", "can't be rendered: no;"),
    "it warns, then fails": ("printf '# Warning: %03000d\\nError: no' 0 >&2; exit 1", "", "can't be rendered: no;"),
    "kubectl fails": ("""printf 'Warning: old\\nE1128 17:19:38.2 9 run.go:72] "command failed" err="no"\\n' >&2; exit 1""", "", "can't be rendered: no;"),
    "it reads no user settings": ('echo "$AWS_SECRET_ACCESS_KEY $HTTPS_PROXY $PATH" >&2; exit 1', "", r"rendered: http://127.0.0.1:1 /\S+/bin;"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "limit", "problem"), PROGRAMS.values(), ids=PROGRAMS)
def test_program(check: Check, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit: str, problem: str) -> None:  # fmt: skip
    program(tmp_path, monkeypatch, script)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    if limit == "SECONDS":
        monkeypatch.setattr(rendering, "SECONDS", 1)
    if limit == "OUTPUT":
        monkeypatch.setattr("webhook.inputs.confined.OUTPUT_AT_MOST", 512 * 1024)
        monkeypatch.setattr("webhook.inputs.confined._LIMITED", 'ulimit -f 1024 && exec "$@"')
    write("a/kustomization.yaml", "resources: []")
    done = check("a", write("p.yaml", POD))
    assert (done.code, done.outcomes) == (2, [("labels", "deny")])
    assert re.search(problem, done.err)


def test_all_roots_share_one_limit(check: Check, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo '{}'")
    monkeypatch.setattr(rendering, "SECONDS_IN_ALL", 0)
    write("a/kustomization.yaml", "{}")
    write("b/kustomization.yaml", "{}")
    done = check(".")
    assert done.code == 2
    assert "take more than 0 s; evaluate one at a time" in done.err


def test_a_named_file_is_judged_unrendered(check: Check, write: Write, kustomize: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(kustomize.parent))
    write("kustomization.yaml", "{resources: [p.yaml], namePrefix: a-}")
    done = check(write("p.yaml", POD))
    assert [result["name"] for result in done.json["results"]] == ["web"]
    alone = check("kustomization.yaml")
    assert (alone.code, alone.json["summary"]["documents"]) == (2, 0)


def test_a_changed_input_changes_the_rendered_objects(check: Check, write: Write, kustomize: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True)  # noqa: S607

    monkeypatch.setenv("PATH", str(kustomize.parent), prepend=os.pathsep)
    write("a/kustomization.yaml", "{resources: [p.yaml], patches: [{path: patch.yaml}]}")
    write("a/p.yaml", POD)
    patch = write("a/patch.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {example.com/b: c}}}")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    assert (check("--changed-since", "main", "a").code, check("--against", "main", "a").code) == (0, 0)
    assert len(check("--changed-since", "main", "--kustomize", "a").json["results"]) == 2
    patch.write_text(patch.read_text().replace("example.com/b", "example.com/c"))
    assert len(check("--changed-since", "main", "--against", "main", "a").json["results"]) == 2


@pytest.mark.parametrize("output", FORMATS)
def test_nothing_to_judge_exits_with_2_in_every_format(run: Run, write: Write, output: str) -> None:
    write("empty/values.yaml", "a: b")
    done = run("check", "-o", f"{output}=report", "empty")
    assert done.code == 2
    assert done.err == "empty: nothing was evaluated: there are no Kubernetes objects here (1 file or document skipped); pass the manifests you apply\n"  # fmt: skip
    assert "nothing was evaluated" in Path("report").read_text() or output == "policyreport"
    assert [run(command, "empty").code for command in ("fix", "explain")] == [2, 2]


@pytest.mark.parametrize("output", ["table", "github", "gitlab"])
def test_many_unreadable_files_are_one_line_with_a_count(run: Run, write: Write, output: str) -> None:
    for number in range(50):
        write(f"many/{number:02}.yaml", f"apiVersion: v1\nkind: Pod\nmetadata: {{a{number}: 1, a{number}: 2}}\n")
    done = run("check", "-o", f"{output}=report", "-o", "json", "many")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert "50 files can't be read or evaluated: many/01.yaml, many/02.yaml, many/03.yaml and others" in line
    assert len(done.json["unreadable"]) == 50
    assert Path("report").read_text().count("files can't be read or evaluated") == 1
