"""Evaluate the compiled JMESPath expressions (https://jmespath.org) of node-pool readers.

`QueryResults` caches the results for one object and collects the problems.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

import jmespath
from jmespath import functions, visitor
from jmespath.exceptions import JMESPathError

from webhook.base.bounds import POOL_ITEMS, QUERY_STEPS, OverBoundError
from webhook.base.exits import CannotJudgeError
from webhook.base.placeholders import placeholder_before
from webhook.kube.layouts import member
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

QueryPath = tuple[str, ...]
_T = TypeVar("_T")
_FIELD: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
"""A field path. Most expressions are only a field path, and don't need JMESPath."""

_CHAINS: Final = ("subexpression", "pipe", "projection", "value_projection", "filter_projection")
_ON_THE_OBJECT: Final = {"visit_expref": 0, **{f"visit_{name}": 1 for name in _CHAINS}}
"""How many children of a node are evaluated on the object; all, if not listed. Paths in the others aren't fields."""

_PART: Final = re.compile(r"([0-9]{1,7})([hms])")
_DURATION: Final = re.compile(f"({_PART.pattern}){{1,3}}")
"""A duration in the format of Kubernetes, with at most three parts: ``1h30m``, ``90s``."""

_UNITS: Final = {"h": 3600, "m": 60, "s": 1}
_MOST_SECONDS: Final = 10**7

_LONGEST: Final = 1_000
"""Maximum characters of an expression. The longest shipped expression has 398."""
_DEEPEST: Final = 100
"""Maximum levels of an expression's tree. Each level takes three calls. The deepest shipped expression has 13."""


class _Functions(functions.Functions):
    """The functions that spotgate adds to JMESPath: `lower`, to ignore letter case, and `times`, to multiply."""

    @functions.signature({"types": ["string", "null"]})
    def _func_lower(self, text: str | None) -> str | None:
        return None if text is None else text.casefold()

    @functions.signature({"types": ["number", "null"]}, {"types": ["number"]})
    def _func_times(self, number: float | None, factor: float) -> float | None:
        return None if number is None else number * factor


_FUNCTIONS: Final = _Functions()
_OPTIONS: Final = jmespath.Options(custom_functions=_FUNCTIONS)

_ERRORS: Final = (JMESPathError, TypeError, ValueError)
"""Exceptions of the library's search. Values of mixed types cause the last two (``[?size > `1`]``)."""


class _TooManyStepsError(Exception):
    """An expression that takes more steps than `QUERY_STEPS`."""


class _Interpreter(visitor.TreeInterpreter):
    """The library's interpreter, with a limit on the steps of one search."""

    def __init__(self) -> None:
        super().__init__(_OPTIONS)
        self._steps = 0

    def visit(self, node: Any, value: Any) -> Any:
        """Evaluate one node of the expression. The library's `visit` would add one call for each node."""
        self._steps += 1
        if self._steps > QUERY_STEPS:
            raise _TooManyStepsError
        return getattr(self, node["type"])(node, value)

    def visit_path(self, node: Any, value: Any) -> Any:
        """Return the value at a field path. `_prepared` combines the steps for its fields into one node."""
        self._steps += len(node["value"])
        return member(value, node["value"])


class Query:
    """An expression, which is compiled on first use: most commands use few of the shipped ones.

    Its result is None if it finds no value or if it fails: `answer` distinguishes the two.

    Attributes:
        text: the expression as written.
        plain: whether the expression is only a field path, so that a manifest can be written with it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = _FIELD.fullmatch(text) is not None

    @classmethod
    def compiled(cls, text: str) -> Query:
        """Compile an expression now. Raise ValueError if the text isn't an expression."""
        if len(text) > _LONGEST:
            raise ValueError(f"has more than {_LONGEST:,} characters")
        query = cls(text)
        if not query.plain:
            _parse(text)
        return query

    @cached_property
    def _tree(self) -> Any:
        try:
            return None if self.plain else _parse(self.text)
        except ValueError as error:
            how = "someone edited a shipped CapacityProvider: to find the line, name the file with --policies"
            raise CannotJudgeError(f"{error}; {how}") from None

    @cached_property
    def _whole(self) -> list[QueryPath]:
        return [tuple(self.text.split("."))] if self._tree is None else list(_fields(self._tree))

    @cached_property
    def paths(self) -> tuple[QueryPath, ...]:
        """Return all field paths that the expression reads."""
        # The quoted name of one member, such as the key of an annotation, isn't part of a path.
        paths = dict.fromkeys(tuple(takewhile(str.isidentifier, path)) for path in self._whole)
        return tuple(path for path in paths if len(path) > 1)

    @cached_property
    def path(self) -> QueryPath:
        """Return the names in ``field``."""
        return self.paths[0] if self.paths else (self.text,)

    @cached_property
    def field(self) -> str:
        """Return the first field that it reads, for messages; the whole text if it reads no field."""
        return ".".join(self.path)

    @cached_property
    def _parents(self) -> list[QueryPath]:
        parents = {path[:end] for path in self._whole for end in range(1, len(path))}
        return sorted(parents, key=lambda path: (len(path), path))

    def __call__(self, value: Mapping[str, Any]) -> Any:  # noqa: D102 - JSON; see the class
        return self.answer(value)[0]

    def search(self, value: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the result, and the reason if the search fails, as a sentence that begins with the field.

        Raise OverBoundError if the expression takes too many steps.
        """
        if self._tree is None:
            return member(value, self.path), ""
        try:
            return _Interpreter().visit(self._tree, value), ""
        except _TooManyStepsError:
            place = self._from(value, None)
            raise OverBoundError(place, f"{place} has too many items") from None
        except _ERRORS:
            place = self._from(value, None)
            missing = member(value, tuple(place.split("."))) is None
            return None, f"{place} is missing" if missing else f"{place} has an unexpected value"

    def answer(self, value: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the result of `search`. Also fail if a parent of a field isn't a map."""
        for path in self._parents:
            parent = member(value, path)
            if parent is not None and not isinstance(parent, dict):
                return None, f"{'.'.join(path)} is {placeholder_before(parent)}not a map"
        try:
            return self.search(value)
        except OverBoundError as error:
            return None, error.reason

    def place(self, value: Mapping[str, Any]) -> str:
        """Return the field that contains the result, or else the expression's first field that the object has."""
        return self.field if self.plain else self._from(value, self(value))

    def _from(self, value: Mapping[str, Any], result: object) -> str:
        contents = [(path, content) for path in self.paths if (content := member(value, path)) is not None]
        same = (path for path, content in contents if content is result)
        return ".".join(next(same, contents[0][0] if contents else self.path))


def _fields(node: Any) -> Iterator[QueryPath]:
    """Yield the paths of the object's fields in a tree, in their order."""
    if node["type"] == "visit_path":
        yield node["value"]
    for child in node["children"][: _ON_THE_OBJECT.get(node["type"])]:
        if isinstance(child, dict):
            yield from _fields(child)


@cache  # providers share expressions
def _parse(text: str) -> Any:
    """Parse the expression into a tree for `_Interpreter`. Raise ValueError if the text isn't an expression."""
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
    """Convert a tree for `_Interpreter`: the type of a node becomes its method, and ``a.b.c`` becomes one node.

    Raise RecursionError if the tree is too deep to evaluate. Raise ValueError if it calls an unknown function, because
    the library looks up functions only during a search.
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
    """One object, the results of its queries so far, and its problems.

    Attributes:
        unread: the first unreadable field that determines whether the pool is usable.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value
        self.problems: list[str] = []
        self.unread = ""
        self._answers: dict[str, tuple[Any, str]] = {}

    def ask(self, query: Query | None, *, doubt: bool = False) -> Any:
        """Return the result of a query. If the query fails, note the problem and return None.

        If ``doubt`` is true, a failure means that the pool's usability is unknown.
        """
        if query is None:
            return None
        result, problem = self.answer(query)
        if problem:
            self.note(problem, query if doubt else None)
        return result

    def is_unread(self, query: Query) -> bool:
        """Return whether the query fails. Its result is then unknown, and no default applies."""
        return bool(self.answer(query)[1])

    def answer(self, query: Query) -> tuple[Any, str]:
        """Return the result of a query, or None and the problem. Queries with the same text share one result."""
        if (answer := self._answers.get(query.text)) is None:
            answer = query.answer(self.value)
            if isinstance(answer[0], list | dict) and len(answer[0]) > POOL_ITEMS:
                count = f"{query.place(self.value)} has {len(answer[0]):,} items"
                answer = None, f"{count}, more than the {POOL_ITEMS:,} that are read"
            self._answers[query.text] = answer
        return answer

    def note(self, problem: str, doubted: Query | None = None) -> None:
        """Add a problem unless it is already noted. With ``doubted``, the pool's usability depends on this field."""
        if problem not in self.problems:
            self.problems.append(problem)
        if doubted is not None and not self.unread:
            self.unread = doubted.place(self.value)

    def typed(self, query: Query | None, kind: type[_T], expected: str, *, doubt: bool = False) -> _T | None:
        """Return the result of `ask`. If it has another type, note the problem and return None.

        ``expected`` completes the problem "FIELD is ...", such as "not text".
        """
        result: _T | None = self.ask(query, doubt=doubt)
        if query is None or result is None or type(result) is kind:
            return result
        self.note(f"{query.place(self.value)} is {placeholder_before(result)}{expected}", query if doubt else None)
        return None

    def number(self, query: Query | None) -> int | None:
        """Return the result of a query as an integer, or None."""
        return self.typed(query, int, "not an integer")

    def seconds(self, query: Query | None) -> int | None:
        """Return the result of a query in seconds, or None. The field contains a number or a duration."""
        result = self.ask(query)
        if query is None or result is None:
            return None
        if isinstance(result, int) and not isinstance(result, bool) and 0 <= result <= _MOST_SECONDS:
            return result
        if isinstance(result, str) and _DURATION.fullmatch(result):
            return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(result))
        self.note(f"{query.field} is neither a number of seconds nor a duration such as 90s")
        return None
