"""Detect Kubernetes objects and their kinds in a file that can't be parsed."""

from __future__ import annotations

import codecs
import re
from typing import Final

from webhook.documents import DOCUMENT_LIMITS

_BOTH: Final = frozenset({b"apiVersion", b"kind"})
_KIND: Final = re.compile(r"""\bkind["']?[ \t]*:[ \t]*["']?([A-Za-z]*)""")
"""A kind in the text, despite other errors. Without letters, it is a placeholder or on another line."""
_SEPARATOR: Final = re.compile(rb"^---(?=\s)", re.MULTILINE)
_AT_MARGIN: Final = re.compile(rb"""^["']?(apiVersion|kind)["']?[ \t]*:""", re.MULTILINE)
_BRACKETS: Final = re.compile(rb"\s*(\[|\{(?![{%]))")
"""The beginning of JSON or of YAML in brackets. A template begins with two brackets."""
_TOKEN: Final = re.compile(
    rb'"?\b(apiVersion|kind)\b"?(?=\s*:)|"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|[{}\[\]]|\w+', re.DOTALL
)
"""A key, a text, a comment as in `tsconfig.json`, a bracket, or a word. An unterminated text or comment continues to
the end of the line or file, so that nothing is scanned twice."""


def names_object(data: bytes) -> bool:
    """Return whether a document has both ``apiVersion`` and ``kind`` at its top level.

    Only the beginning of a file that is too large is known, so one of the two is enough.
    """
    enough = 1 if len(data) > DOCUMENT_LIMITS.size else len(_BOTH)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", errors="replace").encode()
    if not any(key in data for key in _BOTH):
        return False
    data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r", b"\n")
    if _BRACKETS.match(data):
        return len(_at_top(data)) >= enough
    return any(len(set(_AT_MARGIN.findall(part))) >= enough for part in _SEPARATOR.split(data))


def _at_top(data: bytes) -> set[bytes]:
    """Return the keys of the two that are in the outermost brackets of a text."""
    keys, depth = set(), 0
    for token in _TOKEN.finditer(data):
        if token[0] in {b"{", b"["}:
            depth += 1
        elif token[0] in {b"}", b"]"}:
            depth -= 1
        elif token[1] and depth == 1:
            keys.add(token[1])
    return keys


def kinds_in(data: bytes) -> frozenset[str] | None:
    """Return the kinds in a file that can't be parsed, or None if one may be anything."""
    if len(data) > DOCUMENT_LIMITS.size:
        return None
    try:
        kinds = frozenset(match[1] for match in _KIND.finditer(data.decode()))
    except UnicodeDecodeError:
        return None
    return None if "" in kinds else kinds
