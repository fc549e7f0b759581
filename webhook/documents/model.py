"""What the readers share: JSON values, paths into them, limits, and the error."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

import msgspec

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | float | bool | None"
Path: TypeAlias = tuple[str | int, ...]


class Limits(msgspec.Struct, frozen=True):
    """What one file may cost.

    Attributes:
        size: bytes. The API server takes objects of 3 MiB; 64 MiB hold the state of a large cluster.
        depth: levels of nesting. A Pod template's deepest field is at 17, the deepest schemas of CRDs at about 50.
        nodes: values, those that aliases repeat included. Manifests have one in 12 to 30 bytes: one in 8 fits them all.
        aliased: those of them that aliases repeat: what go-yaml grants a small file (its alias_ratio_range_low).
    """

    size: int = 64 * 1024 * 1024
    depth: int = 100
    nodes: int = 64 * 1024 * 1024 // 8
    aliased: int = 400_000


LIMITS: Final = Limits()


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


def parse_pointer(pointer: str) -> Path:
    """A JSON pointer (RFC 6901) as a path. Whole numbers become ints: a pointer does not tell indexes from such keys.

    Raises:
        ValueError: it is neither empty nor begins with ``/``.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"not a JSON pointer: {pointer!r}")
    tokens = (token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))
    return tuple(int(token) if _INDEX.fullmatch(token) else token for token in tokens)


def field_path(path: Path) -> str:
    """A path the way kubectl writes it: ``spec.containers[0].name``, ``metadata.labels["example.com/team"]``."""
    return "".join(map(_step, path)).removeprefix(".")


def described(value: JSONValue) -> str:
    """A value where another type is expected, as people write it; a text alone is not shown."""
    match value:
        case None:
            return "nothing"
        case bool():
            words = "y, yes and on" if value else "n, no and off"
            return f"the boolean {str(value).lower()} (YAML reads {words} so)"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case _:
            return "a list" if isinstance(value, list) else "a mapping"


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Where a character stands, from 1. Lines end where they do for Git and editors; YAML knows more line ends."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _FIELD.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"


_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_FIELD: Final = re.compile(r"[$A-Za-z_][A-Za-z0-9_]*")
