"""The path language of node-pool readers: JMESPath (https://jmespath.org), compiled once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import jmespath
from jmespath import functions
from jmespath.exceptions import JMESPathError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
"""A field path. Most expressions are nothing else, and need no JMESPath."""


class _Functions(functions.Functions):
    """JMESPath's own, and `lower`: JMESPath has nothing that ignores letter case."""

    @functions.signature({"types": ["string", "null"]})
    def _func_lower(self, text: str | None) -> str | None:
        return None if text is None else text.casefold()


_OPTIONS: Final = jmespath.Options(custom_functions=_Functions())


class Query:
    """A compiled expression; an error while searching is no result.

    The library itself raises TypeError and ValueError where values are of mixed types (``[?size > `1`]`` on a string).

    Attributes:
        text: as it is written.
        field: the first field that it looks at, for people; the whole text where it names none.
        plain: it is nothing but a field path, and so also says where to write.
    """

    __slots__ = ("_parents", "_parsed", "_path", "field", "plain", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        found = _FIELD.search(text)
        self.field = found[0] if found else text
        self.plain = self.field == text and found is not None
        self._path = tuple(self.field.split("."))
        self._parents = _parents(text)
        self._parsed = None if self.plain else jmespath.compile(text)

    def __call__(self, value: Mapping[str, Any]) -> Any:  # noqa: ANN401, D102 - JSON; the class says it
        if self._parsed is None:
            return _at(value, self._path)
        try:
            return self._parsed.search(value, options=_OPTIONS)
        except (JMESPathError, TypeError, ValueError):
            return None

    def written(self, value: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """What is at `field` itself, whatever the rest of the expression makes of it."""
        return _at(value, self._path)

    def no_map(self, value: Mapping[str, Any]) -> str:
        """The path of a field that holds another one, and is there without being a map; empty: there is none."""
        for path in self._parents:
            found = _at(value, path)
            if found is not None and not isinstance(found, dict):
                return ".".join(path)
        return ""


def _at(value: Mapping[str, Any], path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    found: Any = value
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _parents(text: str) -> tuple[tuple[str, ...], ...]:
    """Paths that are maps where the expression is to find something, the shortest first.

    What looks like a field path in a literal (``'t3.medium'``) names nothing in an object, and does no harm.
    """
    found: set[tuple[str, ...]] = set()
    for match in _FIELD.finditer(text):
        names = match[0].split(".")
        quoted_child = text.startswith('."', match.end())
        found |= {tuple(names[:end]) for end in range(1, len(names) + quoted_child)}
    return tuple(sorted(found, key=lambda path: (len(path), path)))


def problem_with(text: str) -> str:
    """What is wrong with an expression; empty where nothing is."""
    if _FIELD.fullmatch(text):
        return ""
    try:
        jmespath.compile(text)
    except JMESPathError as error:
        return " ".join(str(error).split())
    return ""
