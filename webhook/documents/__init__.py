"""Read YAML and JSON files as kubectl does: their values, and the position of each in the file.

kubectl decodes with sigs.k8s.io/yaml: go-yaml v2, then Go's encoding/json. That is neither YAML 1.1 nor 1.2: ``y`` and
``on`` are true, ``0777`` is 511, ``08`` is 8, times and dates are strings, ``1.0`` is the integer 1. Stricter here than
there, where they pass in silence: duplicate keys and unknown tags are errors.

Positions cost nothing until one is asked for: a document keeps its text, which is then read once more.
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.documents.json_nodes import compose_json, find_json, is_json
from webhook.documents.json_reader import read_json
from webhook.documents.model import (
    DOCUMENT_LIMITS,
    DocumentError,
    DocumentLimits,
    FieldPath,
    JSONValue,
    described,
    field_path,
    line_and_column,
    parse_field_path,
    parse_pointer,
)
from webhook.documents.yaml_reader import Marks, Offsets, Parsed, YAMLReader

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


_NOWHERE: Final[Offsets] = array("L")


class Document(msgspec.Struct, frozen=True):
    """One document of a file.

    Attributes:
        file: as it was given.
        line: of its beginning, from 1: of its directives if it has any, else of its content.
        value: JSON; no part of it is shared with another.
        source: its text, from the beginning of that line on.
        offset: how many characters of that line are not in ``source`` (JSON objects one after another).
        begin: where ``source`` begins in the text of the file, in characters.
        places: as in `webhook.documents.yaml_reader.Parsed`; empty for JSON.
    """

    file: str
    line: int
    value: JSONValue
    source: str = ""
    offset: int = 0
    begin: int = 0
    places: Offsets = _NOWHERE

    def position(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of the key or item at ``path``, or of its deepest ancestor that exists."""
        line, column = _locate(self, path)
        return self.line + line, column + 1 + (0 if line else self.offset)


def read_documents(data: bytes, file: str, *, limits: DocumentLimits = DOCUMENT_LIMITS) -> list[Document]:
    """Read the documents of a YAML or JSON file, without the empty ones.

    Raises:
        DocumentError: the file can't be read.
    """
    text = _decode(data, file, limits)
    if text.lstrip().startswith(("{", "[")):
        try:
            return _placed(text, file, ((*part, _NOWHERE) for part in read_json(text, limits)))
        except (ValueError, RecursionError):
            pass  # A flow mapping of YAML, a template, or bad JSON: YAML's errors have positions.
    if "\ufeff" in text and (mark := _STRAY_MARK.search(text)):
        problem = "a byte order mark (U+FEFF) begins the line"
        fix = "remove it: it may stand at the beginning of the file alone, once"
        raise DocumentError(file, *line_and_column(text, mark.end() - 1), problem, fix)
    if not text.endswith("\n"):
        text += "\n"  # kubectl ends the last line too, and with it a block scalar
    parsed = YAMLReader(text, file, limits).read()
    return _placed(text, file, ((each.begin, each.end, each.value, each.places) for each in parsed))


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
        fix = "save it as UTF-8, or leave it out if it is no text"
        raise DocumentError(file, line, column, "the file is not UTF-8", fix) from None


def _placed(text: str, file: str, parts: Iterable[tuple[int, int, JSONValue, Offsets]]) -> list[Document]:
    """Return the documents of a text, given the beginning, end, value and places of each."""
    documents: list[Document] = []
    line, line_start, counted = 1, 0, 0
    for begin, end, value, places in parts:
        line += text.count("\n", counted, begin)
        line_start = text.rfind("\n", counted, begin) + 1 or line_start
        counted = begin
        if value is not None:
            documents.append(Document(file, line, value, text[begin:end], begin - line_start, begin, places))
    return documents


_STRAY_MARK: Final = re.compile(r"(?:^|[\n\r\x85\u2028\u2029])\ufeff")
"""libyaml skips the mark there, and then reads the line differently from when its document is read alone."""

_SHORT: Final = 32 * 1024
"""Characters of a YAML document up to which counting to one place is faster than reading it again."""


def _locate(document: Document, path: FieldPath) -> tuple[int, int]:
    """Return line and column in a document's source, from 0, of the key or item at ``path`` or its deepest ancestor."""
    if not document.source:
        return 0, 0
    at = _index(document, path)
    starts = _line_starts(document.source)
    line = bisect_right(starts, at) - 1
    return line, at - starts[line]


def _index(document: Document, path: FieldPath) -> int:
    """Return the offset in a document's source of the key or item at ``path`` or its deepest ancestor."""
    if document.places and len(document.source) < _SHORT:
        return document.places[_ordinal(document.value, path)] - document.places[0]
    if (root := _json_root(document.source)) is not None:
        return find_json(root, path)
    return _marked(document.source, path)


def _ordinal(value: JSONValue, path: FieldPath) -> int:
    """Return the index in a document's places of the key or item at ``path``, or of its deepest ancestor."""
    found = 1
    for step in path:
        if not isinstance(value, (dict, list)):
            break
        members = value.items() if isinstance(value, dict) else enumerate(value)
        name = str(step) if isinstance(value, dict) else step
        place = found + 1
        for key, member in members:
            if key == name:
                found, value = place, member
                break
            place += 1 + _places_in(member)
        else:
            break
    return found


def _places_in(value: JSONValue) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, list):
        return 0
    return len(value) + sum(_places_in(each) for each in value if isinstance(each, (dict, list)))


def _marked(source: str, path: FieldPath) -> int:
    """Return the offset in YAML of the key or item at ``path`` or its deepest ancestor, by libyaml's marks."""
    parsed, marks = _parsed(source)
    node: Any = parsed.value
    at = parsed.start
    for step in path:
        name = str(step) if isinstance(node, dict) else step
        members = marks.get(id(node), {})
        if name not in members:
            break
        at, node = members[name], node[name]
    return at


# The findings of a document come together, and each needs a position.


@lru_cache(maxsize=4)
def _line_starts(source: str) -> array[int]:
    return array("Q", [0, *(newline.end() for newline in re.finditer("\n", source))])


@lru_cache(maxsize=4)
def _json_root(source: str) -> TextNode | None:
    return compose_json(source) if is_json(source) else None


@lru_cache(maxsize=4)
def _parsed(source: str) -> tuple[Parsed, dict[int, Marks]]:
    """Parse the one document in ``source``, and return it with its marks."""
    reader = YAMLReader(source, "", DOCUMENT_LIMITS)
    return next(reader.read()), reader.marks
