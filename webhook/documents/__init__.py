"""Read YAML and JSON files as kubectl does: the values, and the position of each value in the file.

kubectl decodes with sigs.k8s.io/yaml: go-yaml v2, then Go's encoding/json. This is neither YAML 1.1 nor 1.2: ``y`` and
``on`` are true, ``0777`` is 511, ``08`` is 8, times and dates are strings, and ``1.0`` is the integer 1. kubectl
accepts duplicate keys and unknown tags; here they are errors.

A document keeps its text instead of the positions of its values, because most documents have no findings. For the
position of a field, `Document.position` parses the text again, up to that field.
"""

from __future__ import annotations

import codecs
import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.text import line_and_column
from webhook.documents.json_text import read_json
from webhook.documents.model import DOCUMENT_LIMITS, DocumentError, DocumentLimits, JSONValue, TextPart
from webhook.documents.nodes import TextTree
from webhook.documents.yaml_reader import YAMLReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.base.field_paths import FieldPath

__all__ = ["DOCUMENT_LIMITS", "Document", "DocumentError", "DocumentLimits", "JSONValue", "read_documents"]


class Document(msgspec.Struct, frozen=True):
    """One document of a file.

    Attributes:
        file: the name that the caller passed.
        line: the line, from 1, on which the directives start, or the content if there are no directives.
        value: the JSON value. Aliases are expanded to copies: no two parts of the value are the same object.
        source: the text, from the start of the line. In JSON, from the start of the value.
        offset: the number of characters on the line before ``source``.
        begin: the index of ``source`` in the text of the file.
    """

    file: str
    line: int
    value: JSONValue
    source: str = ""
    offset: int = 0
    begin: int = 0

    def position(self, path: FieldPath) -> tuple[int, int]:
        """Return the line and column, from 1, of the key or item at ``path``, or of its deepest existing ancestor."""
        if not self.source:
            return self.line, 1
        line, column = _tree(self.source).find(path)
        return self.line + line, column + 1 + (0 if line else self.offset)


def read_documents(
    data: bytes | memoryview, file: str, *, limits: DocumentLimits = DOCUMENT_LIMITS, line: int = 1, begin: int = 0
) -> list[Document]:
    """Read the documents of a YAML or JSON file. Skip empty documents.

    ``line`` and ``begin`` are the line and the index in the file at which ``data`` starts. Raise DocumentError if the
    file can't be read; its position assumes a whole file.
    """
    text = _decode(data, file, limits)
    if text.lstrip().startswith(("{", "[")):
        # YAML in brackets, a template, or invalid JSON raises an error here. The YAML reader reports positions.
        with contextlib.suppress(ValueError, OverflowError, RecursionError):
            return _placed(text, file, limits, read_json(text, limits), line, begin)
    if not text.endswith("\n"):
        text += "\n"  # kubectl also ends the last line, which can belong to a block scalar
    return _placed(text, file, limits, YAMLReader(text, file, limits).read(), line, begin)


def _decode(data: bytes | memoryview, file: str, limits: DocumentLimits) -> str:
    if len(data) > limits.size:
        raise DocumentError(file, 1, 1, f"the file has more than {limits.size} bytes", "split it into several files")
    if bytes(data[:2]).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DocumentError(file, 1, 1, "the file is UTF-16", "save it as UTF-8 (PowerShell's '>' writes UTF-16)")
    try:
        text = str(data, "utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        line, column = line_and_column(before, len(before))
        fix = "save it as UTF-8, or leave it out if it isn't text"
        raise DocumentError(file, line, column, "the file is not UTF-8", fix) from None
    if (at := text.find("\n\ufeff") + 1) > 0:
        fix = "remove it; to join files, save them as UTF-8 without one"
        raise DocumentError(file, *line_and_column(text, at), "the line begins with a byte order mark", fix)
    if "\n" not in text and "\r" in text.rstrip():  # every position would be on line 1
        raise DocumentError(file, 1, 1, "its lines end with carriage returns", "save it with LF or CRLF line ends")
    return text


def _placed(
    text: str, file: str, limits: DocumentLimits, parts: Iterable[TextPart], line: int, offset: int
) -> list[Document]:
    """Build the documents of a text, which starts at this line and index of the file, from its parts."""
    documents: list[Document] = []
    line_start, counted = 0, 0
    for number, (begin, end, value) in enumerate(parts):
        line += text.count("\n", counted, begin)
        line_start = text.rfind("\n", counted, begin) + 1 or line_start
        counted = begin
        if number >= limits.documents:
            raise DocumentError(file, line, 1, f"more than {limits.documents} documents", "split it into several files")
        if value is not None:
            documents.append(Document(file, line, value, text[begin:end], begin - line_start, begin + offset))
    return documents


_tree: Final = lru_cache(maxsize=4)(TextTree)  # Consecutive findings are often in the same document.
