"""Put the library's error messages into Kubernetes' words, with the place of a mistake and the name that is unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel.errors import HAS_NUL, NOT_KNOWN, EvaluationError, ExpressionError
from webhook.cel.functions import ADDRESS, NETWORK, QUANTITY, URL
from webhook.cel.limits import ROUNDS_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Collection

_ERROR: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_TOO_DEEP: Final = re.compile(r"max recursion depth of \d+|recursion limit exceeded")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^'.]*)")
_OF_TYPES: Final = re.compile(r"found no matching overload for '[_@]*(.+?)_?' applied to '(\(.*?\))'(?=, at `|$)")
_SHOWN: Final = 40
"""Characters of an expression that an error shows, from its mistake on."""
_CALLED: Final = (
    ("Matches", "matches"),
    ("Substring", "substring"),
    (" (in container '')", ""),
    ("map(bool, string)", QUANTITY),
    ("map(int, string)", ADDRESS),
    ("map(bool, list(string))", NETWORK),
    ("map(int, list(string))", URL),
    ("variables_", "variables."),
    ("_givenNamespace", "namespaceObject"),
    ("_givenOld", "oldObject"),
    ("_given", "object"),
)
"""The library's names for functions and types of our own, and the names in policies."""


def refused(text: str, expression: str, lines_before: int, functions: Collection[str]) -> ExpressionError:
    """Return the error for the first mistake in the expression itself.

    ``lines_before`` are the lines of bound names, which were compiled with it.
    """
    if _TOO_DEEP.search(text):
        deep = "it is nested too deeply, where fields of fields and each variable that it reads count too: split it"
        return ExpressionError(deep)
    mistakes = [(int(match[1]) - lines_before, int(match[2]), match[3]) for match in _ERROR.finditer(text)]
    if not mistakes:
        return ExpressionError(_STATUS.sub("", text))
    # Of `list.al(x, ...)` it names `x` before `al`, without which `x` would be known.
    undeclared = [mistake for mistake in mistakes if _UNDECLARED.search(mistake[2])]
    line, column, problem = min(undeclared, default=mistakes[0])
    if match := _UNDECLARED.search(problem):
        return _unknown(match[1], expression, functions)
    excerpt = "".join(expression.split("\n")[max(line - 1, 0) : line])[max(column - 1, 0) :].strip()
    problem = problem.partition(" expecting ")[0] + (f", at `{excerpt[:_SHOWN]}`" if excerpt else "")
    for theirs, ours in _CALLED:
        problem = problem.replace(theirs, ours)
    return ExpressionError(_OF_TYPES.sub(r"`\1` does not take \2", problem))


def _unknown(name: str, expression: str, functions: Collection[str]) -> ExpressionError:
    """Return the error for an unknown name."""
    if name not in functions:
        return ExpressionError(f"there is no `{name}`", name)
    if match := re.search(rf"(?<![\w.]){name}\.\w+", expression):
        return ExpressionError(f"there is no `{match[0]}`")
    return ExpressionError(f"`{name}` does not take what it is given here")


def wrong_type(kind: str, wanted: str) -> ExpressionError:
    """Return the error for an expression whose result has the wrong type; types are in capital letters."""
    given = "anything" if kind == "DYN" else kind.lower()
    hint = ": compare it, as in `... == true`" if kind == "DYN" and wanted == "BOOL" else ""
    return ExpressionError(f"it must give a {wanted.lower()}, and gives {given}", hint=hint)


_NOT_CONVERTED: Final = re.compile(
    r"(?:Non-CEL|Unexpected) value type for '([A-Za-z.]+)': (\w+)\.(?: \(Expected .*\))?"
)
"""Matches whole messages only: others quote the object, whose text must not pass for an unknown value."""
_NO_KEY: Final = "no such key: "
_ABSENT: Final = "check first whether the field exists, with `has(object.spec.x)` or `object.?x.orValue(...)`"
_NO_FIELDS: Final = "a field is read of what has none: a string, a number, a list or null"
_MESSAGES: Final = tuple(
    (re.compile(theirs, re.DOTALL), ours)
    for theirs, ours in (
        (r".*Iteration budget exceeded.*", f"its loops took more than {ROUNDS_AT_MOST} rounds"),
        (r'Key not found in map : "?(.*?)"?', rf"{_NO_KEY}\1"),
        (r"Index error: index=(-?\d+) size=\d+", r"index out of bounds: \1"),
        (r"No matching overloads found : _([^_]+)_\((.*), (.*)\)", r"no such overload: \2 \1 \3"),
        (r"No matching overloads found : (.*)", r"no such overload: \1"),
        (r"Invalid container type.*|Applying SELECT to non-message type", _NO_FIELDS),
        (r'No value with name "namespaceObject.metadata.name" found in Activation', _NO_FIELDS),
        (r"vector::reserve", "lists.range() of a negative number"),
    )
)


def failed(text: str) -> EvaluationError:
    """Return the error for a message of the library."""
    text = _STATUS.sub("", text)
    if (match := _NOT_CONVERTED.fullmatch(text)) is not None:
        if match[2] == type(NOT_KNOWN).__name__:
            return EvaluationError(f"{match[1]} is not known", unknown=match[1])
        if match[2] == type(HAS_NUL).__name__:
            return EvaluationError(f"{match[1]} has a NUL character in it, and can't be judged")
    message = next((match.expand(ours) for theirs, ours in _MESSAGES if (match := theirs.fullmatch(text))), text)
    if message.startswith(_NO_KEY):
        return EvaluationError(message, hint=_ABSENT)
    for name, shown in (*_CALLED, ("int64", "int"), ("null_type", "null"), ("*opaque*", "optional")):
        message = message.replace(name, shown)
    return EvaluationError(message)
