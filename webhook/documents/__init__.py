"""YAML and JSON files, read the way kubectl reads them: values, and where in the file each of them is.

kubectl decodes with sigs.k8s.io/yaml: go-yaml v2, then Go's encoding/json. That is neither YAML 1.1 nor 1.2: ``y`` and
``on`` are true, ``0777`` is 511, ``08`` is 8, times and dates are strings, ``1.0`` is the integer 1. Stricter here than
there, where they pass in silence: duplicate keys and unknown tags are errors.

Positions cost nothing until one is asked for: a document keeps its text, which is then read once more.
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from webhook.documents.json_reader import read_json
from webhook.documents.model import (
    ESCAPED_SURROGATE,
    LIMITS,
    DocumentError,
    JSONValue,
    Limits,
    Path,
    field_path,
    parse_pointer,
)
from webhook.documents.yaml_reader import Marks, Parsed, YAMLReader, line_and_column

__all__ = [
    "LIMITS",
    "Document",
    "DocumentError",
    "JSONValue",
    "Limits",
    "Path",
    "field_path",
    "parse_pointer",
    "read_documents",
]


class Document(msgspec.Struct, frozen=True):
    """One document of a file.

    Attributes:
        file: as it was given.
        line: where its content begins, from 1.
        value: JSON; no part of it is shared with another.
        source: its text, from the beginning of that line on.
        offset: how many characters of that line are not in ``source`` (JSON objects one after another).
        begin: where ``source`` begins in the text of the file, in characters.
    """

    file: str
    line: int
    value: JSONValue
    source: str = ""
    offset: int = 0
    begin: int = 0

    def position(self, path: Path) -> tuple[int, int]:
        """Line and column, from 1, of the key (of a mapping's member) or the item (of a sequence) at ``path``.

        If it is not there: of its deepest ancestor that is.
        """
        line, column = _locate(self.source, path)
        return self.line + line, column + 1 + (0 if line else self.offset)


def read_documents(data: bytes, file: str, *, limits: Limits = LIMITS) -> list[Document]:
    """The documents of a YAML or JSON file, without the empty ones.

    Raises:
        DocumentError: whatever is wrong with the file.
    """
    text = _decode(data, file, limits)
    if text.lstrip().startswith(("{", "[")):
        try:
            return _json_documents(text, file, limits)
        except (ValueError, RecursionError):
            pass  # A flow mapping of YAML, a template, or bad JSON: YAML's errors have positions.
    if not text.endswith("\n"):
        text += "\n"  # kubectl ends the last line too, and with it a block scalar
    return [
        Document(
            file, start.line + 1, value, text[start.index - start.column : end.index], begin=start.index - start.column
        )
        for value, start, end in YAMLReader(text, file, limits).read()
        if value is not None
    ]


def _decode(data: bytes, file: str, limits: Limits) -> str:
    if len(data) > limits.size:
        problem = f"the file has more than {limits.size} bytes"
        raise DocumentError(file, 1, 1, problem, "split it into several files")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DocumentError(file, 1, 1, "the file is UTF-16", "save it as UTF-8 (PowerShell's '>' writes UTF-16)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = line_and_column(error.object[: error.start])
        fix = "save it as UTF-8, or leave it out if it is no text"
        raise DocumentError(file, line, column, "the file is not UTF-8", fix) from None


def _json_documents(text: str, file: str, limits: Limits) -> list[Document]:
    documents: list[Document] = []
    line, line_start, counted = 1, 0, 0
    for start, end, value in read_json(text, file, limits):
        line += text.count("\n", counted, start)
        line_start = text.rfind("\n", counted, start) + 1 or line_start
        counted = start
        if value is not None:
            documents.append(Document(file, line, value, text[start:end], start - line_start, start))
    return documents


_SHORT: Final = 32 * 1024
"""Characters of a document in which one position is found faster by itself than all of them together."""


@lru_cache(maxsize=4)  # The findings of a document come together, each asking for its own position.
def _parsed(source: str) -> tuple[Parsed, dict[int, Marks]]:
    """The one document in ``source`` and its marks."""
    reader = _reader(source)
    return next(reader.read()), reader.marks


def _reader(source: str) -> YAMLReader:
    return YAMLReader(ESCAPED_SURROGATE.sub(r"\\u0020", source), "", LIMITS)


def _locate(source: str, path: Path) -> tuple[int, int]:
    """Line and column in ``source``, from 0, of the key or item at ``path`` or of its deepest ancestor."""
    if not source:
        return 0, 0
    try:
        mark = (_reader(source).find(path) if len(source) < _SHORT else None) or _mark(source, path)
    except (DocumentError, yaml.YAMLError):  # JSON that is no YAML: keys past 1,024 characters
        return 0, 0
    return mark.line, mark.column


def _mark(source: str, path: Path) -> yaml.Mark:
    (value, mark, _), marks = _parsed(source)
    node: Any = value
    for step in path:
        name = str(step) if isinstance(node, dict) else step
        members = marks.get(id(node), {})
        if name not in members:
            break
        mark, node = members[name], node[name]
    return mark
