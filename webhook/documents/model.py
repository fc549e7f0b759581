"""Define JSON values, the limits of a file, and the error for a file that can't be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from webhook.base.bounds import FILE_AT_MOST

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | float | bool | None"

TextPart: TypeAlias = tuple[int, int, JSONValue]
"""The start and end of a document in the text of a file, and its value."""


class DocumentLimits(msgspec.Struct, frozen=True):
    """The limits of one file.

    Attributes:
        size: bytes.
        depth: levels of nesting. The deepest field of a Pod template is at level 17; CRD schemas have up to about 50.
        nodes: values, including aliased ones. Manifests have one per 12 to 30 bytes; the limit is one per 8.
        aliased: values that aliases repeat. go-yaml allows the same number in a small file (``alias_ratio_range_low``).
        documents: 64 MiB hold this many manifests of 670 bytes. This many one-line documents take 33 MB and 0.4 s.
    """

    size: int = FILE_AT_MOST
    depth: int = 100
    nodes: int = FILE_AT_MOST // 8
    aliased: int = 400_000
    documents: int = 100_000


DOCUMENT_LIMITS: Final = DocumentLimits()


@dataclass(eq=False)
class DocumentError(Exception):
    """A file that can't be read: ``file:line:column: problem; fix``. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.problem}; {self.fix}"


def entries(value: JSONValue) -> dict[str | int, JSONValue]:
    """Return the members of a mapping by key, or the items of a list by index. A scalar has no entries."""
    if isinstance(value, (dict, list)):
        return dict(value.items() if isinstance(value, dict) else enumerate(value))
    return {}
