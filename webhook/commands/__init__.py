"""Run the ``spotgate`` or ``kubectl spotgate`` command line. Import a command's module only to run that command."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook import __version__
from webhook.base.exits import CANNOT_JUDGE, CannotJudgeError
from webhook.base.terminal import complain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS: Final = {
    "serve": "run the admission webhook",
    "controller": "assign Pods to on-demand and spot nodes, for workloads with an on-demand floor",
    "check": "evaluate manifests from files, folders, or standard input",
    "fix": "add the webhook's changes to manifests",
    "fn": "evaluate and change a ResourceList, as a KRM function for kustomize and kpt",
    "explain": "explain policies, node pools, and findings, and what a reclaim does to Pods",
    "review": "answer one AdmissionReview as the webhook does",
    "test": "run policy tests",
    "rehearse": "simulate the loss of spot nodes with the real scheduler",
    "replay": "evaluate recorded reviews with other policies, and list the differences",
    "new": "print an example policy file",
    "schema": "print the JSON Schema of policy files, for editors",
    "webhook-config": "print the webhook configurations for the API server",
    "certs": "show, check, or rotate the certificates of an installation",
    "audit": "evaluate the objects of a live cluster, and list workloads that would not survive a reclaim",
    "doctor": "check a live installation, without writing to it",
    "export": "print policies as Kubernetes admission policies, which work without the webhook",
}
_INTERRUPTED: Final = 130
"""The exit code that shells give to a program that Ctrl-C stopped."""


_HELP: Final = partial(argparse.RawDescriptionHelpFormatter, max_help_position=30, width=100)
"""The help format, as wide as the texts."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process. Return the exit code.

    0: no findings, 1: findings, 2: an input can't be evaluated.
    """
    if "_ARGCOMPLETE" in os.environ:  # the shell requests completions
        _complete()
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for example, Latin-1 output
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed the error
        return stop.code if isinstance(stop.code, int) else CANNOT_JUDGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # `spotgate check | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CANNOT_JUDGE
    except (CannotJudgeError, OSError) as error:  # OSError: for example, the output's disk is full
        complain(*str(error).split("\n"))
        return CANNOT_JUDGE
    except Exception:  # noqa: BLE001 - Python exits with 1, which would mean findings
        import traceback

        traceback.print_exc()
        print("spotgate: this is a bug in spotgate, and nothing was evaluated", file=sys.stderr)
        return CANNOT_JUDGE
    return code


def _run(arguments: list[str]) -> int:
    program = "kubectl spotgate" if Path(sys.argv[0]).name.startswith("kubectl-") else "spotgate"
    command, *rest = arguments or ["--help"]
    if command not in COMMANDS:
        _no_command(program).parse_args([command, *rest])
        return CANNOT_JUDGE
    options = command_parser(program, command).parse_intermixed_args(rest)
    code: int = options.run(options)
    return code


def command_parser(program: str, command: str) -> argparse.ArgumentParser:
    """Build the parser of a command. Set ``run`` to the command's function."""
    module = _module(command)
    parser = argparse.ArgumentParser(
        prog=f"{program} {command}",
        description=module.DESCRIPTION,
        epilog=module.EPILOG,
        formatter_class=_HELP,
        allow_abbrev=False,
    )
    parser.set_defaults(run=module.run)
    module.configure(parser)
    return parser


def _module(command: str) -> ModuleType:
    """Import the module of a command, which takes most of the time of evaluating one file."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # finding them takes longer than evaluating a file
    gc.disable()  # imported objects stay; scanning them for garbage would take a seventh of the run time
    try:
        return importlib.import_module(f"webhook.commands.{command.replace('-', '_')}.command")
    finally:
        gc.freeze()
        gc.enable()


def _complete() -> None:
    """Print the completions of the shell's command line, and exit."""
    import argcomplete

    _, *words = os.environ.get("COMP_LINE", "spotgate").split()
    argcomplete.autocomplete(_no_command("spotgate", configured=words[0] if words else ""))


def _no_command(program: str, configured: str = "") -> argparse.ArgumentParser:
    """Build the parser for a missing or unknown command. ``configured`` names a command to add with its flags."""
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [-h] [--version] COMMAND ...",
        description="Admission control for Kubernetes workloads on spot capacity.",
        formatter_class=_HELP,
        epilog=f"`{program} COMMAND --help` explains a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"spotgate {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == configured:
            _module(name).configure(command)
    return parser
