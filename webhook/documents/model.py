"""Define JSON values, and the limits and the error of the readers."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from webhook.base.bounds import FILE_AT_MOST

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | float | bool | None"


class DocumentLimits(msgspec.Struct, frozen=True):
    """The bounds on one file.

    Attributes:
        size: bytes.
        depth: levels of nesting. A Pod template's deepest field is at 17, the deepest schemas of CRDs at about 50.
        nodes: values, those that aliases repeat included. Manifests have one in 12 to 30 bytes: one in 8 fits them all.
        aliased: those of them that aliases repeat: what go-yaml grants a small file (its alias_ratio_range_low).
        documents: 64 MiB hold so many manifests of 670 bytes. One-line documents of that number take 33 MB and 0.4 s.
    """

    size: int = FILE_AT_MOST
    depth: int = 100
    nodes: int = FILE_AT_MOST // 8
    aliased: int = 400_000
    documents: int = 100_000


DOCUMENT_LIMITS: Final = DocumentLimits()


class DocumentError(Exception):
    """A file that cannot be read: ``file:line:column: problem; fix``. Lines and columns count from 1."""

    def __init__(self, file: str, line: int, column: int, problem: str, fix: str) -> None:
        super().__init__(file, line, column, problem, fix)
        self.file = file
        self.line = line
        self.column = column
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.problem}; {self.fix}"


def described(value: JSONValue) -> str:
    """Return the name of a value's type for people, with the value if it is a number or a boolean."""
    match value:
        case None:
            return "nothing"
        case bool():
            words = "y, yes and on" if value else "n, no and off"
            return f"the boolean {str(value).lower()} (YAML reads {words} as {str(value).lower()})"
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case _:
            return "a list" if isinstance(value, list) else "a map"


def entries(value: JSONValue) -> dict[str | int, JSONValue]:
    """Return the members of a mapping by key, or the items of a list by index; of a scalar none."""
    if isinstance(value, (dict, list)):
        return dict(value.items() if isinstance(value, dict) else enumerate(value))
    return {}


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return line and column of a character, from 1. Lines end as in Git and editors; YAML has more line ends."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
