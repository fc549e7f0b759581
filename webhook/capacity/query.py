"""The path language of node-pool readers: JMESPath (https://jmespath.org), compiled once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import jmespath
from jmespath.exceptions import JMESPathError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
"""A field path. Most expressions are nothing else, and need no JMESPath."""


class Query:
    """A compiled expression; an error while searching is no result.

    The library itself raises TypeError and ValueError where values are of mixed types (``[?size > `1`]`` on a string).

    Attributes:
        text: as it is written.
        field: the first field that it looks at, for people; the whole text where it names none.
        plain: it is nothing but a field path, and so also says where to write.
    """

    __slots__ = ("_parsed", "_path", "field", "plain", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        found = _FIELD.search(text)
        self.field = found[0] if found else text
        self.plain = self.field == text and found is not None
        self._path = tuple(text.split("."))
        self._parsed = None if self.plain else jmespath.compile(text)

    def __call__(self, value: Mapping[str, Any]) -> Any:  # noqa: ANN401, D102 - JSON; the class says it
        if self._parsed is None:
            found: Any = value
            for name in self._path:
                found = found.get(name) if isinstance(found, dict) else None
            return found
        try:
            return self._parsed.search(value)
        except (JMESPathError, TypeError, ValueError):
            return None


def problem_with(text: str) -> str:
    """What is wrong with an expression; empty where nothing is."""
    if _FIELD.fullmatch(text):
        return ""
    try:
        jmespath.compile(text)
    except JMESPathError as error:
        return " ".join(str(error).split())
    return ""
