"""What all commands have in common: help, exit codes, output that ends early, and what is imported."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from webhook import __version__
from webhook import commands as cli
from webhook.commands import COMMANDS
from webhook.commands.check import command as check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run

PROGRAM = [sys.executable, "-c", "import sys; from webhook.commands import main; sys.exit(main())"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_says_what_it_is_for_how_it_is_used_and_how_it_ends(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"usage: spotgate {command}" in done.out
    assert "examples:\n  spotgate " in done.out
    assert "exit codes:\n  0  " in done.out


def test_program_without_a_command_lists_all_of_them(run: Run) -> None:
    done = run()
    assert done.code == 0
    assert all(command in done.out for command in COMMANDS)


def test_version_is_the_packages(run: Run) -> None:
    assert run("--version").out == f"spotgate {__version__}\n"


@pytest.mark.parametrize("command", ["audit", "certs check", "doctor"])
def test_without_a_kubeconfig_the_file_that_is_not_there_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    done = run(*command.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(": nowhere: can't be used to reach an API server: No such file or directory\n")


def test_as_a_kubectl_plugin_it_calls_itself_by_that_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-spotgate", "check"])
    assert "usage: kubectl spotgate check" in run("check", "--help").out
    assert "usage: kubectl spotgate [-h]" in run("--help").out


def test_interrupt_ends_it_as_shells_expect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupted)
    assert run("check", "x.yaml").code == 130


def test_garbage_is_looked_for_again_once_a_command_is_imported(run: Run) -> None:
    assert run("check", "--help").code == 0
    assert gc.isenabled()


def test_bug_is_never_taken_for_findings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(check, "run", broken)
    assert cli.main(["check", "x.yaml"]) == 2
    assert "this is a bug in spotgate" in capsys.readouterr().err


def test_reader_that_goes_away_is_no_traceback(write: Callable[[str, str], Path], policies: Path) -> None:
    pods = "---\n".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, labels: {{example.com/a: b}}}}\n"
        for number in range(2000)
    )
    write("pods.yaml", pods)
    process = subprocess.Popen(
        [*PROGRAM, "check", "-o", "json", "pods.yaml", "--policies", str(policies)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), stderr) == (2, b"")


def test_checking_a_file_imports_nothing_that_only_other_commands_need(
    write: Callable[[str, str], Path],
) -> None:
    write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    code = """
import sys
from webhook.commands import main
assert main(["check", "namespace.yaml"]) == 0
heavy = {"aiohttp", "argcomplete", "asyncio", "cel_expr_python", "cryptography", "jsonpatch", "kubernetes",
         "prometheus_client", "re2", "rich", "structlog", "uvloop", "webhook.server"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("spotgate ex", {"explain", "export"}),
        ("spotgate check --fail", {"--fail-on"}),
        ("spotgate check --fail-on ", {"deny", "warn", "indeterminate"}),
    ],
)
def test_a_shell_is_told_what_may_follow(line: str, offered: set[str], tmp_path: Path) -> None:
    file = tmp_path / "offered"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(file)}
    done = subprocess.run(PROGRAM, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {each.strip() for each in file.read_text().split("\n")} >= offered
