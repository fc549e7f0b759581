"""Write a report in the formats of ``check -o``: a module for each, named as the format, with its ``FORMAT``."""

from __future__ import annotations

import os
import pkgutil
from argparse import ArgumentTypeError
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.base.terminal import exit_code
from webhook.policy.errors import problem_lines

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterable

    from webhook.offline.report import Report

FORMATS: Final = tuple(module.name for module in pkgutil.iter_modules(__path__))

Output = tuple[str, Path | None]
"""One ``-o FORMAT[=FILE]``; no file: standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of the report.

    Attributes:
        about: what the format is for, one line of Markdown, which ``docs/cli/formats.md`` shows.
        render: return the report as text, without a newline at the end.
        show: print the report on standard output, if that differs from printing what `render` returns.
        timelines: it shows the timelines of reclaims, which are computed only for formats that do.
    """

    about: str
    render: Callable[[Report], str]
    show: Callable[[Report], None] | None = None
    timelines: bool = False


def format_named(name: str) -> Format:
    """Import a format, one of `FORMATS`."""
    format_: Format = import_module(f"{__name__}.{name}").FORMAT
    return format_


def add_output(parser: ArgumentParser) -> None:
    """Add ``-o``, ``--fail-on`` and ``--verbose``."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT[=FILE]",
        type=_output,
        action="append",
        help=f"{', '.join(FORMATS)}; FORMAT=FILE writes a file; repeatable; default: table",
    )
    parser.add_argument(
        "--fail-on",
        choices=("deny", "warn", "indeterminate"),
        default="",
        help="lowest outcome that makes the exit code 1: deny, warn or indeterminate; default: deny",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="list every finding and every patch in the table, instead of groups",
    )


def _output(text: str) -> Output:
    """Parse an argument of ``-o``. Raise ArgumentTypeError if its format is unknown or the file's name is missing."""
    name, named, file = text.partition("=")
    if name not in FORMATS:
        raise ArgumentTypeError(f"no format {name!r}; choose from {', '.join(FORMATS)}")
    if named and not file:
        raise ArgumentTypeError(f"{text!r} names no file; write {name}=FILE, or {name} for standard output")
    return name, Path(file) if file else None


def outputs_of(named: list[Output]) -> list[Output]:
    """Return where the report goes. Raise CannotJudgeError if two outputs go to the same place."""
    outputs = named or [("table", None)]
    places = {os.path.realpath(file) if file else "" for _, file in outputs}
    if len(places) < len(outputs):
        raise CannotJudgeError("error: two -o go to the same place; write one of them to another file: -o FORMAT=FILE")
    return outputs


def write_report(report: Report, outputs: Iterable[Output], fixes: Iterable[str] = ()) -> int:
    """Print the report and write its files. Return the exit code.

    ``fixes`` say how to correct what could not be judged.
    """
    unwritten = [problem for output in outputs if (problem := _write(report, *output))]
    problems = [*problem_lines(report.unreadable, alone=report.verbose), *unwritten, *fixes]
    return exit_code(problems, failed=any(map(report.fails, report.results)))


def _write(report: Report, name: str, file: Path | None) -> str:
    """Print the report or write its file. Return why the file can't be written, or an empty string."""
    chosen = format_named(name)
    if file is not None:
        from webhook.base.writing import write_whole

        try:
            write_whole(file, f"{chosen.render(report)}\n".encode())
        except OSError as error:
            fix = "its folder must be there and writable; or name another file"
            return f"error: -o {name}={file}: can't be written: {error.strerror or error}; {fix}"
    elif chosen.show is not None:
        chosen.show(report)
    else:
        print(chosen.render(report))
    return ""
