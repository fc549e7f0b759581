"""Define JSON values, paths into them, placeholders in them, and the limits and the error of the readers."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

import msgspec

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | float | bool | None"
FieldPath: TypeAlias = tuple[str | int, ...]


class DocumentLimits(msgspec.Struct, frozen=True):
    """The bounds on one file.

    Attributes:
        size: bytes. The API server takes objects of 3 MiB; 64 MiB hold the state of a large cluster.
        depth: levels of nesting. A Pod template's deepest field is at 17, the deepest schemas of CRDs at about 50.
        nodes: values, those that aliases repeat included. Manifests have one in 12 to 30 bytes: one in 8 fits them all.
        aliased: those of them that aliases repeat: what go-yaml grants a small file (its alias_ratio_range_low).
        documents: 64 MiB hold so many manifests of 670 bytes. One-line documents of that number take 33 MB and 0.4 s.
    """

    size: int = 64 * 1024 * 1024
    depth: int = 100
    nodes: int = 64 * 1024 * 1024 // 8
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


def parse_pointer(pointer: str) -> FieldPath:
    """Parse a JSON pointer (RFC 6901). Whole numbers become indexes: a pointer does not tell them from such keys.

    Raise ValueError if the pointer is neither empty nor begins with ``/``.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"not a JSON pointer: {pointer!r}")
    tokens = (token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))
    return tuple(int(token) if _INDEX.fullmatch(token) else token for token in tokens)


def field_path(path: FieldPath) -> str:
    """Return a path as kubectl writes it: ``spec.containers[0].name``, ``metadata.labels["example.com/team"]``."""
    return "".join(map(_step, path)).removeprefix(".")


def parse_field_path(field: str) -> FieldPath:
    """Parse a field as `field_path` writes it, as far as it is one."""
    path: list[str | int] = []
    end = 0
    while step := _FIELD_STEP.match(field, end):
        name, index, key = step.groups()
        path.append(int(index) if index else name or _unescaped(key))
        end = step.end()
    return tuple(path)


def _unescaped(key: str) -> str:
    try:
        return str(json.loads(f'"{key}"', strict=False))
    except ValueError:  # written as it is
        return key


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


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _FIELD.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"


_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_FIELD: Final = re.compile(r"[$A-Za-z_][A-Za-z0-9_]*")

_FIELD_STEP: Final = re.compile(r'\.?([$A-Za-z_][\w$-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


_PLACEHOLDER: Final = re.compile(
    r"\$\{[^}\n]*\}|\{\{.*?\}\}|\{%.*?%\}|\A\$[a-z_]\w*\Z|(?<=the placeholder )\$[a-z_]\w*", re.ASCII | re.IGNORECASE
)
"""``$NAME``, which envsubst fills in too, counts only as the whole value, and where a problem quotes it."""
_SEARCHED: Final = 4_096
"""Characters of a text that are searched: 3 MiB would take 30 ms. Names and numbers with a placeholder are shorter."""
_SHOWN: Final = 60
"""Characters of a placeholder that a message quotes."""


def placeholder_in(value: object) -> str:
    """Return the first placeholder in a text, or in the texts of a list or mapping; empty if there is none."""
    if isinstance(value, str):
        match = _PLACEHOLDER.search(value, 0, _SEARCHED)
        return match[0][:_SHOWN] if match is not None else ""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(placeholder_in, members)), "")


def placeholder_before(value: object) -> str:
    """Return ``the placeholder ${X}, ``, which a problem such as "not a list" can follow; empty if there is none."""
    placeholder = placeholder_in(value)
    return f"the placeholder {placeholder}, " if placeholder else ""


def filling_in(value: object) -> str:
    """Return what to do about the first placeholder in a value; empty if there is none."""
    placeholder = placeholder_in(value)
    fix = "fill it in first (envsubst, helm template, flux build), and pass the result"
    return f"{placeholder} is a placeholder: {fix}" if placeholder else ""
