"""The formats of ``check -o``: a module for each, named as the format, whose ``FORMAT`` renders the report."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cli.report.model import Report

FORMATS: Final = tuple(each.name for each in pkgutil.iter_modules(__path__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of the report.

    Attributes:
        about: whom or what it is for, one line of Markdown: ``docs/cli/check.md`` shows it.
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
    found: Format = import_module(f"{__name__}.{name}").FORMAT
    return found
