"""Find the position of an error in an AdmissionReview."""

from __future__ import annotations

import re
from typing import Final

from webhook.base.field_paths import parse_field_path
from webhook.documents import DocumentError, read_documents

_BYTE: Final = re.compile(r"\(byte (\d+)\)$")
_FIELD: Final = re.compile(r"`(?:\$\.)?((?:apiVersion|kind|request)\b[^`]*)`")


def position_of(data: bytes, error: str) -> tuple[int, int]:
    """Return the line and column, from 1, of the byte or field that an error names."""
    if byte := _BYTE.search(error):
        before = data[: int(byte[1])]
        return before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    field = _FIELD.search(error)
    try:
        (document,) = read_documents(data, "")
    except DocumentError as broken:
        return broken.line, broken.column
    except ValueError:
        return 1, 1
    return document.position(parse_field_path(field[1]) if field else ())
