"""Evaluate the expressions of node-pool readers: JMESPath (https://jmespath.org), compiled once.

`QueryResults` caches their results on one object, and collects the problems.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import jmespath
from jmespath import functions, visitor
from jmespath.exceptions import JMESPathError

from webhook.base.bounds import POOL_ITEMS, QUERY_STEPS, OverBoundError
from webhook.documents.model import placeholder_before
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

QueryPath = tuple[str, ...]
_T = TypeVar("_T")
_FIELD: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
"""A field path. Most expressions are only that, and need no JMESPath."""

_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
"""A literal, or the name of one member, such as the key of an annotation: no field path."""

_PART: Final = re.compile(r"([0-9]{1,7})([hms])")
_DURATION: Final = re.compile(f"({_PART.pattern}){{1,3}}")
"""A duration as Kubernetes writes it: ``1h30m``, ``90s``; it has no more than three parts."""

_UNITS: Final = {"h": 3600, "m": 60, "s": 1}
_MOST_SECONDS: Final = 10**7

_LONGEST: Final = 1_000
"""Characters of an expression. The longest shipped one has 398."""
_DEEPEST: Final = 100
"""Levels of its tree, each of which takes three calls to evaluate. The deepest shipped one has 13."""


class _Functions(functions.Functions):
    """The functions that JMESPath lacks: `lower`, to ignore letter case, and `times`, to multiply."""

    @functions.signature({"types": ["string", "null"]})
    def _func_lower(self, text: str | None) -> str | None:
        return None if text is None else text.casefold()

    @functions.signature({"types": ["number", "null"]}, {"types": ["number"]})
    def _func_times(self, number: float | None, factor: float) -> float | None:
        return None if number is None else number * factor


_FUNCTIONS: Final = _Functions()
_OPTIONS: Final = jmespath.Options(custom_functions=_FUNCTIONS)

_ERRORS: Final = (JMESPathError, TypeError, ValueError)
"""Exceptions of the library's search; the latter two for values of mixed types (``[?size > `1`]``)."""


class _TooManyStepsError(Exception):
    """The error for an expression that goes over too many items."""


class _Interpreter(visitor.TreeInterpreter):
    """The library's interpreter with a limit on the steps of one search."""

    def __init__(self) -> None:
        super().__init__(_OPTIONS)
        self._steps = 0

    def visit(self, node: Any, value: Any) -> Any:
        """Evaluate a node of the expression on one value. The library's own `visit` would be a call more for each."""
        self._steps += 1
        if self._steps > QUERY_STEPS:
            raise _TooManyStepsError
        return getattr(self, node["type"])(node, value)

    def visit_path(self, node: Any, value: Any) -> Any:
        """Return the value at a field path, which `_prepared` puts in place of a step for each field."""
        self._steps += len(node["value"])
        return at(value, node["value"])


class Query:
    """A compiled expression.

    Its result is None if it finds nothing, and if it fails on what it finds: `answer` tells them apart.

    Attributes:
        text: the expression as it is written.
        field: the first field that it reads, for people; the whole text if it names none.
        path: the names in ``field``.
        paths: all field paths that the expression names.
        plain: the expression is only a field path, so that it also says where to write.
    """

    def __init__(self, text: str) -> None:
        """Compile an expression. Raise ValueError if the text is none."""
        if len(text) > _LONGEST:
            raise ValueError(f"has more than {_LONGEST:,} characters")
        self.text = text
        match = _FIELD.search(text)
        self.field = match[0] if match else text
        self.plain = self.field == text and match is not None
        self.path = tuple(self.field.split("."))
        bare = _QUOTED.sub(lambda quoted: "." * len(quoted[0]), text)
        # A path after a dot is relative to something else.
        starts = (match for match in _FIELD.finditer(bare) if not bare[: match.start()].endswith("."))
        self.paths = tuple(tuple(match[0].split(".")) for match in starts)
        self._parents = _parents(text)
        self._tree = None if self.plain else _parse(text)

    def __call__(self, value: Mapping[str, Any]) -> Any:  # noqa: D102 - JSON; the class says it
        return self.answer(value)[0]

    def search(self, value: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the result, and the reason if the search fails: a sentence that begins with the field.

        Raise OverBoundError if the expression goes over more items than are judged.
        """
        if self._tree is None:
            return at(value, self.path), ""
        try:
            return _Interpreter().visit(self._tree, value), ""
        except _TooManyStepsError:
            place = self._from(value, None)
            raise OverBoundError(place, f"{place} has more items than are judged") from None
        except _ERRORS:
            place = self._from(value, None)
            missing = at(value, tuple(place.split("."))) is None
            return None, f"{place} is missing" if missing else f"{place} can't be read as it is"

    def answer(self, value: Mapping[str, Any]) -> tuple[Any, str]:
        """Return what `search` does, but fail also if a parent of a field is no map."""
        for path in self._parents:
            parent = at(value, path)
            if parent is not None and not isinstance(parent, dict):
                return None, f"{'.'.join(path)} is {placeholder_before(parent)}not a map"
        try:
            return self.search(value)
        except OverBoundError as error:
            return None, error.reason

    def place(self, value: Mapping[str, Any]) -> str:
        """Return the field that the result comes from, or else the first of its fields that the object has."""
        return self.field if self.plain else self._from(value, self(value))

    def _from(self, value: Mapping[str, Any], result: object) -> str:
        contents = [(path, content) for path in self.paths if (content := at(value, path)) is not None]
        same = (path for path, content in contents if content is result)
        return ".".join(next(same, contents[0][0] if contents else self.path))


def at(value: Mapping[str, Any], path: QueryPath) -> Any:
    """Return the value at a field path. Return None if there is none."""
    content: Any = value
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _parents(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths that must be maps for the expression to find something, the shortest first.

    What looks like a field path in a literal (``'t3.medium'``) names nothing in an object, and does no harm.
    """
    paths: set[tuple[str, ...]] = set()
    for match in _FIELD.finditer(text):
        names = match[0].split(".")
        quoted_child = text.startswith('."', match.end())
        paths |= {tuple(names[:end]) for end in range(1, len(names) + quoted_child)}
    return tuple(sorted(paths, key=lambda path: (len(path), path)))


def _parse(text: str) -> Any:
    """Return the tree of the expression for `_Interpreter`. Raise ValueError if the text is no expression."""
    try:
        if text.count("(") > _DEEPEST:  # the tree has no parentheses, but the library's parser recurses for each
            raise RecursionError  # noqa: TRY301 - as the library would
        return _prepared(jmespath.compile(text).parsed)
    except JMESPathError as error:
        problem = " ".join(str(error).split())
    except RecursionError:
        problem = f"it is nested more than {_DEEPEST} levels deep"
    raise ValueError(f"not a JMESPath expression: {problem}")


def _prepared(node: Any, level: int = 1) -> Any:
    """Return the tree as `_Interpreter` visits it: the type of a node is its method, and ``a.b.c`` is one node.

    Raise RecursionError if it is too deep to be evaluated, and ValueError if it calls an unknown function: the library
    itself looks for functions only while it searches.
    """
    if not isinstance(node, dict):  # a bound of a slice
        return node
    if level > _DEEPEST:
        raise RecursionError
    if node["type"] == "function_expression" and (name := node["value"]) not in _FUNCTIONS.FUNCTION_TABLE:
        hint = did_you_mean(name, _FUNCTIONS.FUNCTION_TABLE)
        raise ValueError(f"not a JMESPath expression: there is no function `{name}`{hint}")
    children = [_prepared(child, level + 1) for child in node["children"]]
    if node["type"] == "subexpression" and all(child["type"] in {"visit_field", "visit_path"} for child in children):
        names = [child["value"] for child in children]
        path = tuple(name for value in names for name in ((value,) if isinstance(value, str) else value))
        return {"type": "visit_path", "children": [], "value": path}
    return {**node, "type": f"visit_{node['type']}", "children": children}


class QueryResults:
    """One object, the results of its queries so far, and the problems in it.

    Attributes:
        unread: the first field that can't be read although it says whether the pool can be used.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value
        self.problems: list[str] = []
        self.unread = ""
        self._answers: dict[str, tuple[Any, str]] = {}

    def ask(self, query: Query | None, *, doubt: bool = False) -> Any:
        """Return the result of a query. Return None, and note the problem, if it can't be answered.

        With ``doubt``, a failure leaves it unknown whether the pool can be used.
        """
        if query is None:
            return None
        result, problem = self.answer(query)
        if problem and doubt:
            self.doubt(query, problem)
        elif problem:
            self.note(problem)
        return result

    def is_unread(self, query: Query) -> bool:
        """Return whether the query can't be answered. Its result is then unknown, and no default holds."""
        return bool(self.answer(query)[1])

    def answer(self, query: Query) -> tuple[Any, str]:
        """Return the result of a query, or None and the problem. Queries of the same text share one result."""
        if (answer := self._answers.get(query.text)) is None:
            answer = query.answer(self.value)
            if isinstance(answer[0], list | dict) and len(answer[0]) > POOL_ITEMS:
                what = f"{query.place(self.value)} has {len(answer[0]):,} items"
                answer = None, f"{what}, more than the {POOL_ITEMS:,} that are read"
            self._answers[query.text] = answer
        return answer

    def note(self, problem: str) -> None:
        """Add a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def doubt(self, query: Query, *problems: str) -> None:
        """Note problems that leave it unknown whether the pool can be used."""
        for problem in problems:
            self.note(problem)
        if problems and not self.unread:
            self.unread = query.place(self.value)

    def typed(self, query: Query | None, kind: type[_T], expected: str, *, doubt: bool = False) -> _T | None:
        """Return the result of a query as `ask` does. Return None, and note the problem, if it is of another type.

        ``expected`` are the words for the type.
        """
        result: _T | None = self.ask(query, doubt=doubt)
        if query is None or result is None or type(result) is kind:
            return result
        note = partial(self.doubt, query) if doubt else self.note
        note(f"{query.place(self.value)} is {placeholder_before(result)}{expected}")
        return None

    def number(self, query: Query | None) -> int | None:
        """Return an integer, or None."""
        return self.typed(query, int, "not an integer")

    def seconds(self, query: Query | None) -> int | None:
        """Return a number of seconds, which may be written as a duration, or None."""
        result = self.ask(query)
        if query is None or result is None:
            return None
        if isinstance(result, int) and not isinstance(result, bool) and 0 <= result <= _MOST_SECONDS:
            return result
        if isinstance(result, str) and _DURATION.fullmatch(result):
            return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(result))
        self.note(f"{query.field} is neither a number of seconds nor a duration such as 90s")
        return None
