"""Write a report in the formats of ``check -o``. Each format is a module with its name and a ``FORMAT``."""

from __future__ import annotations

import os
import pkgutil
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.base.terminal import exit_code
from webhook.policy.errors import problem_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.report.report import Report

FORMATS: Final = tuple(module.name for module in pkgutil.iter_modules(__path__))

Output = tuple[str, Path | None]
"""One ``-o FORMAT[=FILE]``. Without a file, the output is standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A report format.

    Attributes:
        about: the purpose of the format in one line of Markdown, for ``docs/cli/formats.md``.
        render: returns the report as text without a final newline.
        show: prints the report to standard output, if this differs from printing the output of `render`.
        timelines: whether the format shows reclaim timelines. Other formats skip computing them.
    """

    about: str
    render: Callable[[Report], str]
    show: Callable[[Report], None] | None = None
    timelines: bool = False


def format_named(name: str) -> Format:
    """Import one of `FORMATS`."""
    format_: Format = import_module(f"{__name__}.{name}").FORMAT
    return format_


def add_output(parser: ArgumentParser) -> None:
    """Add ``-o``, ``--fail-on``, and ``--verbose``."""
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
        help="exit with 1 for findings of this outcome or a higher one: deny, warn, or indeterminate; default: deny",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="list every finding and every patch in the table, instead of groups",
    )


def _output(text: str) -> Output:
    """Parse an argument of ``-o``. Raise ArgumentTypeError if the format is unknown or the file name is missing."""
    name, named, file = text.partition("=")
    if name not in FORMATS:
        raise ArgumentTypeError(f"no format {name!r}; choose from {', '.join(FORMATS)}")
    if named and not file:
        raise ArgumentTypeError(f"{text!r} names no file; write {name}=FILE, or {name} for standard output")
    return name, Path(file) if file else None


def outputs_of(named: list[Output]) -> list[Output]:
    """Return the outputs of the report. Raise CannotJudgeError if two outputs have the same destination."""
    outputs = named or [("table", None)]
    places = {os.path.realpath(file) if file else "" for _, file in outputs}
    if len(places) < len(outputs):
        raise CannotJudgeError("error: two -o go to the same place; write one of them to another file: -o FORMAT=FILE")
    return outputs


def write_report(report: Report, outputs: Iterable[Output], fixes: Iterable[str] = ()) -> int:
    """Print the report and write its files. Return the exit code.

    ``fixes`` are suggestions for inputs that can't be evaluated.
    """
    unwritten = [problem for output in outputs if (problem := _write(report, *output))]
    problems = [*problem_lines(report.unreadable, alone=report.verbose), *unwritten, *fixes]
    return exit_code(problems, failed=any(map(report.fails, report.results)))


def _write(report: Report, name: str, file: Path | None) -> str:
    """Print the report or write its file. Return an error if the file can't be written; otherwise an empty string."""
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
