"""The path language of node-pool readers: JMESPath (https://jmespath.org), compiled once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import jmespath
from jmespath import functions
from jmespath.exceptions import (
    ArityError,
    JMESPathError,
    ParseError,
    UnknownFunctionError,
    VariadictArityError,
)

from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jmespath.parser import ParsedResult

_FIELD: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
"""A field path. Most expressions are nothing else, and need no JMESPath."""


class _Functions(functions.Functions):
    """JMESPath's own, and `lower`: JMESPath has nothing that ignores letter case."""

    @functions.signature({"types": ["string", "null"]})
    def _func_lower(self, text: str | None) -> str | None:
        return None if text is None else text.casefold()


_FUNCTIONS: Final = _Functions()
_OPTIONS: Final = jmespath.Options(custom_functions=_FUNCTIONS)


_ERRORS: Final = (JMESPathError, TypeError, ValueError)
"""What the library raises while it searches; the latter two where values are of mixed types (``[?size > `1`]``)."""


_NUMBER: Final = "NUMBER"
"""What the library's parser calls one that has no place where it is."""


class Query:
    """A compiled expression.

    It has no result where it finds nothing, and where it fails on what it finds: `answer` tells them apart.

    Attributes:
        text: as it is written.
        field: the first field that it looks at, for people; the whole text where it names none.
        plain: it is nothing but a field path, and so also says where to write.
    """

    __slots__ = ("_parents", "_parsed", "_path", "_paths", "field", "plain", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        found = _FIELD.search(text)
        self.field = found[0] if found else text
        self.plain = self.field == text and found is not None
        self._path = tuple(self.field.split("."))
        # What follows a dot begins below something else.
        starts = (match for match in _FIELD.finditer(text) if not text[: match.start()].endswith("."))
        self._paths = tuple(tuple(match[0].split(".")) for match in starts)
        self._parents = _parents(text)
        self._parsed = None if self.plain else _parse(text)

    def __call__(self, value: Mapping[str, Any]) -> Any:  # noqa: ANN401, D102 - JSON; the class says it
        return self.search(value)[0]

    def search(self, value: Mapping[str, Any]) -> tuple[Any, str]:
        """Its result, and where it fails on what is there, that as a sentence that begins with the field."""
        if self._parsed is None:
            return _at(value, self._path), ""
        try:
            return self._parsed.search(value, options=_OPTIONS), ""
        except _ERRORS:
            place = self._from(value, None)
            return None, f"{place} is missing" if at(value, place) is None else f"{place} can't be read as it is"

    def answer(self, value: Mapping[str, Any]) -> tuple[Any, str]:
        """The same, where a field that holds another and is no map is in the way too."""
        for path in self._parents:
            found = _at(value, path)
            if found is not None and not isinstance(found, dict):
                return None, f"{'.'.join(path)} is not a map"
        return self.search(value)

    def written(self, value: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """What is at `field` itself, whatever the rest of the expression makes of it."""
        return _at(value, self._path)

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Return the field paths that it names."""
        return self._paths

    def place(self, value: Mapping[str, Any]) -> str:
        """The field that its result is from, where it looks at several; or the first of them that the object has."""
        return self.field if self.plain else self._from(value, self(value))

    def _from(self, value: Mapping[str, Any], result: object) -> str:
        there = [(path, found) for path in self._paths if (found := _at(value, path)) is not None]
        same = (path for path, found in there if found is result)
        return ".".join(next(same, there[0][0] if there else self._path))


def at(value: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - JSON
    """What is at a field path; None: nothing."""
    return _at(value, tuple(path.split(".")))


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
        _parse(text)
    except JMESPathError as error:
        said = " ".join(str(error).split())
        if isinstance(error, ParseError) and not isinstance(error, ArityError) and error.token_type == _NUMBER:
            return f"{said}; numbers are written in backticks, `{error.token_value}`"
        return said
    return ""


def _parse(text: str) -> ParsedResult:
    """The expression. The library itself looks for its functions only while it searches, where an error is no result.

    Raises:
        JMESPathError: it is none, or calls a function that there is not, or not as that takes its arguments.
    """
    parsed = jmespath.compile(text)
    known = _FUNCTIONS.FUNCTION_TABLE
    for name, given in _called(parsed.parsed):
        if name not in known:
            raise UnknownFunctionError(f"there is no function `{name}`{did_you_mean(name, known)}")
        signature = known[name]["signature"]
        wanted = len(signature)
        if signature[-1].get("variadic"):
            if given < wanted:
                raise VariadictArityError(wanted, given, name)
        elif given != wanted:
            raise ArityError(wanted, given, name)
    return parsed


def _called(node: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - the library's own tree
    """The functions that it calls, each with how many arguments."""
    if not isinstance(node, dict):  # a bound of a slice
        return
    if node["type"] == "function_expression":
        yield node["value"], len(node["children"])
    for child in node["children"]:
        yield from _called(child)
