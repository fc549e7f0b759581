"""Parse and format the path of a field in an object."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

FieldPath: TypeAlias = tuple[str | int, ...]


def parse_pointer(pointer: str) -> FieldPath:
    """Parse a JSON pointer (RFC 6901). Whole numbers become indexes: a pointer can't distinguish an index from a key.

    Raise ValueError if the pointer isn't empty and doesn't start with ``/``.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"not a JSON pointer: {pointer!r}")
    tokens = (token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))
    return tuple(int(token) if _INDEX.fullmatch(token) else token for token in tokens)


def field_path(path: FieldPath) -> str:
    """Return a path as kubectl formats it: ``spec.containers[0].name``, ``metadata.labels["example.com/team"]``."""
    return "".join(map(_step, path)).removeprefix(".")


def parse_field_path(field: str) -> FieldPath:
    """Parse a field that `field_path` formatted. Stop at the first text that isn't a step."""
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
    except ValueError:  # not escaped
        return key


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _FIELD.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"


_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_FIELD: Final = re.compile(r"[$A-Za-z_][A-Za-z0-9_]*")

_FIELD_STEP: Final = re.compile(r'\.?([$A-Za-z_][\w$-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
