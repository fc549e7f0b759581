"""Where a report of ``check`` goes: ``-o FORMAT`` prints it, ``-o FORMAT=FILE`` writes a file."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from webhook.cli.output import FORMATS, format_named

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable

    from webhook.cli.report.model import Report


class Output(msgspec.Struct, frozen=True):
    """Hold one ``-o FORMAT[=FILE]``.

    Attributes:
        file: None: standard output.
    """

    format: str
    file: Path | None = None


def add_output(parser: ArgumentParser) -> None:
    """Declare ``-o``."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT[=FILE]",
        type=output,
        action="append",
        help=f"{', '.join(FORMATS)}; to a file where one is named; can be given again; default: table",
    )


def output(text: str) -> Output:
    """Parse an argument of ``-o``.

    Raises:
        ArgumentTypeError: the format is unknown or the name of the file is missing.
    """
    name, named, file = text.partition("=")
    if name not in FORMATS:
        raise ArgumentTypeError(f"no format {name!r}; choose from {', '.join(FORMATS)}")
    if named and not file:
        raise ArgumentTypeError(f"{text!r} names no file; write {name}=FILE, or {name} for standard output")
    return Output(name, Path(file) if file else None)


def clash_of(outputs: Iterable[Output]) -> str:
    """Return which two outputs go to the same place; empty if none do."""
    seen: dict[str, str] = {}
    for each in outputs:
        place = "" if each.file is None else os.path.realpath(each.file)
        if place in seen:
            where = "standard output" if each.file is None else f"the file {each.file}"
            both = f"-o {seen[place]} and -o {each.format} both go to {where}"
            return f"{both}; write one of them to another file: -o {each.format}=FILE"
        seen[place] = each.format
    return ""


def write_report(report: Report, to: Output) -> str:
    """Print the report or write its file. Return why the file can't be written, or an empty string."""
    chosen = format_named(to.format)
    if to.file is not None:
        from webhook.cli.writing import write_whole  # noqa: PLC0415 - for few

        try:
            write_whole(to.file, f"{chosen.render(report)}\n".encode())
        except OSError as error:
            fix = "its folder must be there and writable; or name another file"
            return f"error: -o {to.format}={to.file}: can't be written: {error.strerror or error}; {fix}"
    elif chosen.show is not None:
        chosen.show(report)
    else:
        print(chosen.render(report))
    return ""
