"""Read YAML and JSON files as kubectl does: their values, and the position of each in the file.

kubectl decodes with sigs.k8s.io/yaml: go-yaml v2, then Go's encoding/json. That is neither YAML 1.1 nor 1.2: ``y`` and
``on`` are true, ``0777`` is 511, ``08`` is 8, times and dates are strings, ``1.0`` is the integer 1. Stricter here than
there, where they pass in silence: duplicate keys and unknown tags are errors.

A short YAML document keeps the places of its keys and items: to read it once more for the position of a finding takes
as long as to judge it. JSON, long documents, and those with aliases are read once more.
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.documents.json_text import compose, read_json
from webhook.documents.model import (
    DOCUMENT_LIMITS,
    DocumentError,
    DocumentLimits,
    FieldPath,
    JSONValue,
    described,
    entries,
    field_path,
    line_and_column,
    parse_field_path,
    parse_pointer,
)
from webhook.documents.yaml_reader import Offsets, YAMLReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.documents.nodes import TextNode

__all__ = [
    "DOCUMENT_LIMITS",
    "Document",
    "DocumentError",
    "DocumentLimits",
    "FieldPath",
    "JSONValue",
    "described",
    "field_path",
    "parse_field_path",
    "parse_pointer",
    "read_documents",
]


_NO_PLACES: Final[Offsets] = array("L")


class Document(msgspec.Struct, frozen=True):
    """One document of a file.

    Attributes:
        file: as it was given.
        line: of its beginning, from 1: of its directives if it has any, else of its content.
        value: JSON; no part of it is shared with another.
        source: its text, from the beginning of that line on.
        offset: how many characters of that line are not in ``source`` (JSON objects one after another).
        begin: where ``source`` begins in the text of the file, in characters.
        places: as in `webhook.documents.yaml_reader.YAMLReader.read`; empty for JSON.
    """

    file: str
    line: int
    value: JSONValue
    source: str = ""
    offset: int = 0
    begin: int = 0
    places: Offsets = _NO_PLACES

    def position(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of the key or item at ``path``, or of its deepest ancestor that exists."""
        if not self.source:
            return self.line, 1
        at = self.places[_ordinal(self.value, path)] - self.places[0] if self.places else _root(self.source).find(path)
        starts = _line_starts(self.source)
        line = bisect_right(starts, at) - 1
        return self.line + line, at - starts[line] + 1 + (0 if line else self.offset)


def read_documents(data: bytes, file: str, *, limits: DocumentLimits = DOCUMENT_LIMITS) -> list[Document]:
    """Read the documents of a YAML or JSON file, without the empty ones.

    Raise DocumentError if the file can't be read.
    """
    text = _decode(data, file, limits)
    if text.lstrip().startswith(("{", "[")):
        try:
            return _placed(text, file, limits, ((*spanned, _NO_PLACES) for spanned in read_json(text, limits)))
        except (ValueError, OverflowError, RecursionError):
            pass  # A flow mapping of YAML, a template, or bad JSON: YAML's errors have positions.
    if not text.endswith("\n"):
        text += "\n"  # kubectl ends the last line too, and with it a block scalar
    return _placed(text, file, limits, YAMLReader(text, file, limits).read())


def _decode(data: bytes, file: str, limits: DocumentLimits) -> str:
    if len(data) > limits.size:
        problem = f"the file has more than {limits.size} bytes"
        raise DocumentError(file, 1, 1, problem, "split it into several files")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DocumentError(file, 1, 1, "the file is UTF-16", "save it as UTF-8 (PowerShell's '>' writes UTF-16)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        line, column = line_and_column(before, len(before))
        fix = "save it as UTF-8, or leave it out if it isn't text"
        raise DocumentError(file, line, column, "the file is not UTF-8", fix) from None


def _placed(
    text: str, file: str, limits: DocumentLimits, parts: Iterable[tuple[int, int, JSONValue, Offsets]]
) -> list[Document]:
    """Return the documents of a text, given the beginning, end, value and places of each."""
    documents: list[Document] = []
    line, line_start, counted = 1, 0, 0
    for number, (begin, end, value, places) in enumerate(parts):
        line += text.count("\n", counted, begin)
        line_start = text.rfind("\n", counted, begin) + 1 or line_start
        counted = begin
        if number >= limits.documents:
            raise DocumentError(file, line, 1, f"more than {limits.documents} documents", "split it into several files")
        if value is not None:
            documents.append(Document(file, line, value, text[begin:end], begin - line_start, begin, places))
    return documents


def _ordinal(value: JSONValue, path: FieldPath) -> int:
    """Return the index in a document's places of the key or item at ``path``, or of its deepest ancestor."""
    ordinal = 1
    for step in path:
        members = entries(value)
        key = str(step) if isinstance(value, dict) else step
        if key not in members:
            break
        index = list(members).index(key)
        ordinal += 1 + index + sum(map(_places_in, list(members.values())[:index]))
        value = members[key]
    return ordinal


def _places_in(value: JSONValue) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    members = value.values() if isinstance(value, dict) else value
    return len(members) + sum(map(_places_in, members))


# The findings of a long document come together, and each needs a position.


@lru_cache(maxsize=4)
def _line_starts(source: str) -> array[int]:
    return array("Q", [0, *(newline.end() for newline in re.finditer("\n", source))])


@lru_cache(maxsize=4)
def _root(source: str) -> TextNode:
    return compose(source)[0]
