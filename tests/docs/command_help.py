"""The help of commands as Markdown, without the examples, which people write in the pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.commands import COMMANDS, command_parser
from webhook.formats import FORMATS, format_named

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_SECTION: Final = re.compile(r"^(\S.*):\n((?:(?:  .*)?\n)+)", re.MULTILINE)
_TERM: Final = re.compile(r"  (\S(?:.*?\S)?)  +(\S.*)")
_HEADS: Final = {"positional arguments": "argument", "options": "flag"}


def command_list() -> str:
    """Return the table of all commands."""
    rows = (f"| [`{name}`]({name}.md) | {does} |" for name, does in COMMANDS.items())
    return "\n".join(["| | |", "|---|---|", *rows])


def format_list() -> str:
    """Return the table of the formats of ``check -o``."""
    rows = (f"| `{name}` | {format_named(name).about} |" for name in FORMATS)
    return "\n".join(["| format | for |", "|---|---|", *rows])


def command_help(command: str) -> str:
    """Return the help of a command: purpose, flags, and the sections below them."""
    parser = command_parser("spotgate", command)
    parts = [
        *((parser.description or "").strip().split("\n\n")),
        *_flags(parser),
        *(_section(name, text) for name, text in _SECTION.findall(parser.epilog or "") if name != "examples"),
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a table for each group of flags. Only name the groups that `check` has too."""
    of_check = _groups(command_parser("spotgate", "check")) if parser.prog != "spotgate check" else {}
    shared = []
    for title, rows in _groups(parser).items():
        if title not in _HEADS and of_check.get(title) == rows:
            shared.append(title.partition(";")[0])
        elif rows:
            yield _table(_HEADS.get(title, title), rows)
    if shared:
        yield f"See [`spotgate check`](check.md) for the flags about {', '.join(shared)}."


def _groups(parser: argparse.ArgumentParser) -> dict[str, list[tuple[str, str]]]:
    return {
        group.title or "": [(_flag(flag), _about(flag, parser)) for flag in group._group_actions if flag.dest != "help"]
        for group in parser._action_groups
    }


def _flag(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else action.metavar or "|".join(action.choices or (action.dest.upper(),))
    return f"{', '.join(action.option_strings)} {value}".strip()


def _about(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _section(name: str, text: str) -> str:
    """Return a section of the epilog: a table of its terms, or a paragraph."""
    lines = text.rstrip().split("\n")
    if not _TERM.fullmatch(lines[0]):
        return f"**{name[:1].upper()}{name[1:]}:** " + " ".join(line.strip() for line in lines)
    rows: list[tuple[str, str]] = []
    for line in lines:
        if match := _TERM.fullmatch(line):
            rows.append((match[1], match[2]))
        else:
            term, about = rows.pop()
            rows.append((term, f"{about} {line.strip()}"))
    return _table(name, rows)


def _table(head: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head} | |", "|---|---|"]
    for term, about in rows:
        values = term.replace("|", "`, `")  # in a table, some renderers show the backslash of an escaped | as well
        lines.append(f"| `{values}` | {about} |")
    return "\n".join(lines)
