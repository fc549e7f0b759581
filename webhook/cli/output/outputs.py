"""Where a report of ``check`` goes: the formats of ``-o``, each a module with ``render(report) -> str``."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cli.output.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.cli.output.report import Report

FORMATS: Final = ("table", "json", "sarif", "junit", "github", "gitlab", "policyreport", "html")

DRAWING: Final = frozenset({"html"})
"""Formats with timelines, for which a judgement has to keep its trace."""

TITLED: Final = frozenset({"policyreport", "html"})
"""Formats that say what policies are for: the models say that, whose import is slow."""


class Output(msgspec.Struct, frozen=True):
    """One ``-o FORMAT[=FILE]``.

    Attributes:
        file: None: standard output.
    """

    format: str
    file: Path | None = None


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
    module = import_module(f"webhook.cli.output.{to.format}")
    if to.file is not None:
        try:
            write_whole(to.file, f"{module.render(report)}\n".encode())
        except OSError as error:
            fix = "its folder must be there and writable; or name another file"
            return f"error: -o {to.format}={to.file}: can't be written: {error.strerror or error}; {fix}"
    elif to.format == "table":  # in colour
        module.show(report)
    else:
        print(module.render(report))
    return ""
