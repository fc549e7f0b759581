"""Behavior that all commands share: help, exit codes, closed pipes, and imports."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from webhook import __version__
from webhook import commands as cli
from webhook.base.terminal import plain, show_in_colour
from webhook.commands import COMMANDS
from webhook.commands.check import command as check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run, Write

PROGRAM = [sys.executable, "-c", "import sys; from webhook.commands import main; sys.exit(main())"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_states_purpose_usage_and_exit_codes(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"usage: spotgate {command}" in done.out
    assert "examples:\n  spotgate " in done.out
    assert "exit codes:\n  0  " in done.out


def test_program_without_a_command_lists_the_commands(run: Run) -> None:
    done = run()
    assert done.code == 0
    assert all(command in done.out for command in COMMANDS)


def test_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").out == f"spotgate {__version__}\n"


@pytest.mark.parametrize("command", ["audit", "certs check", "doctor"])
def test_a_missing_kubeconfig_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    done = run(*command.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(": nowhere: can't be used to reach an API server: No such file or directory\n")


def test_a_kubectl_plugin_uses_its_plugin_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-spotgate", "check"])
    assert "usage: kubectl spotgate check" in run("check", "--help").out
    assert "usage: kubectl spotgate [-h]" in run("--help").out


def test_an_interrupt_exits_as_shells_expect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupted)
    assert run("check", "x.yaml").code == 130


def test_garbage_collection_resumes_after_the_imports(run: Run) -> None:
    assert run("check", "--help").code == 0
    assert gc.isenabled()


def test_a_bug_has_a_different_exit_code_than_findings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(check, "run", broken)
    assert cli.main(["check", "x.yaml"]) == 2
    assert "this is a bug in spotgate" in capsys.readouterr().err


def test_a_closed_pipe_causes_no_traceback(write: Callable[[str, str], Path], policies: Path) -> None:
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


def test_check_imports_no_modules_of_other_commands(write: Callable[[str, str], Path]) -> None:
    write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    code = """
import sys
from webhook.commands import main
assert main(["check", "namespace.yaml"]) == 0
heavy = {"aiohttp", "argcomplete", "asyncio", "cel_expr_python", "cryptography", "jsonpatch", "kubernetes",
         "prometheus_client", "pydantic", "pydantic_core", "re2", "rich", "structlog", "uvloop", "webhook.server"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_servers_do_not_import_the_synchronous_client_of_kubernetes() -> None:
    code = "import sys, webhook.server.serve, webhook.controller.run; sys.exit('kubernetes.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("spotgate ex", {"explain", "export"}),
        ("spotgate check --fail", {"--fail-on"}),
        ("spotgate check --fail-on ", {"deny", "warn", "indeterminate"}),
        ("spotgate new Re", {"ReservedLabels"}),
        ("spotgate explain reserved-", {"reserved-labels", "reserved-labels/reserved"}),
        ("spotgate explain SpotP", {"SpotPlacement"}),
    ],
)
def test_shell_completion_lists_candidates(line: str, offered: set[str], tmp_path: Path) -> None:
    file = tmp_path / "offered"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(file)}
    done = subprocess.run(PROGRAM, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {line.strip() for line in file.read_text().split("\n")} >= offered


# Printed lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J\nb\x9b  ", "a [2J b"),
        ("::warning::a", ": :warning::a"),
        ("  \n::warning::a", "   : :warning::a"),
        ("a: ::warning::", "a: ::warning::"),
    ],
)
def test_plain_lines_have_no_control_characters_or_runner_commands(text: str, shown: str) -> None:
    assert plain([[(text, "bold")]]) == shown


def test_colored_lines_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show_in_colour([[("a\x1b[2J\nb", "")]])
    assert capsys.readouterr().out == "a [2J b\n"


def test_prose_wraps_below_its_beginning_and_yaml_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    words = "one two three four five six seven"
    show_in_colour([[("    ", ""), (words, "")], [("      ", ""), (words, "")]])
    assert capsys.readouterr().out == f"    one two three four five\n    six seven\n      {words}\n"


@pytest.mark.parametrize("command", ["check", "explain", "fix", "test"])
def test_policy_errors_have_no_control_characters(run: Run, write: Write, command: str) -> None:
    key = json.dumps("a\n::error title=x::injected \u202e\x1b[31m")
    write("p.yaml", f"apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {{name: a}}\nspec: {{{key}: 1}}\n")
    done = run(command, "--policies", "p.yaml", "p.yaml")
    assert done.code == 2
    assert "unknown field `a\n: :error title=x::injected   [31m`\n" in done.err
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err


CONNECTING = """
import asyncio, pathlib, sys
import structlog
from webhook.cluster.connection import connect

async def main():
    api = await connect(pathlib.Path(sys.argv[1]))
    await api.close()
    structlog.get_logger().warning("resource not watched")

asyncio.run(main())
"""

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: x}}]
"""


def test_log_lines_of_a_connection_go_to_standard_error(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    done = subprocess.run([sys.executable, "-c", CONNECTING, kubeconfig], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "resource not watched" in done.stderr
