"""Translate the library's error messages to Kubernetes' terms. Add the position of the mistake or the unknown name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel.errors import HAS_NUL, NOT_KNOWN, EvaluationError, ExpressionError
from webhook.cel.names import NAMES

if TYPE_CHECKING:
    from collections.abc import Collection

_ERROR: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_TOO_DEEP: Final = re.compile(r"max recursion depth of \d+|recursion limit exceeded")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^'.]*)")
_OF_TYPES: Final = re.compile(r"found no matching overload for '[_@]*(.+?)_?' applied to '(\(.*?\))'(?=, at `|$)")
_SHOWN: Final = 40
"""The maximum number of characters that an error quotes from the expression, starting at the mistake."""


def refused(text: str, expression: str, lines_before: int, functions: Collection[str]) -> ExpressionError:
    """Return the error for the first mistake in the expression.

    ``lines_before`` is the number of lines that bind names, which were compiled before the expression.
    """
    if _TOO_DEEP.search(text):
        return ExpressionError("it is nested too deeply, counting its fields and variables: split it")
    mistakes = [(int(match[1]) - lines_before, int(match[2]), match[3]) for match in _ERROR.finditer(text)]
    if not mistakes:
        return ExpressionError(_STATUS.sub("", text))
    # For `list.al(x, ...)`, the library reports `x` before `al`, but only `al` is wrong.
    undeclared = [mistake for mistake in mistakes if _UNDECLARED.search(mistake[2])]
    line, column, problem = min(undeclared, default=mistakes[0])
    if match := _UNDECLARED.search(problem):
        return _unknown(match[1], expression, functions)
    excerpt = "".join(expression.split("\n")[max(line - 1, 0) : line])[max(column - 1, 0) :].strip()
    problem = problem.partition(" expecting ")[0] + (f", at `{excerpt[:_SHOWN]}`" if excerpt else "")
    for theirs, ours in NAMES.replacements:
        problem = problem.replace(theirs, ours)
    return ExpressionError(_OF_TYPES.sub(r"`\1` does not take \2", problem))


def _unknown(name: str, expression: str, functions: Collection[str]) -> ExpressionError:
    """Return the error for an unknown name."""
    if name not in functions:
        return ExpressionError(f"there is no `{name}`", name)
    if match := re.search(rf"(?<![\w.]){name}\.\w+", expression):
        return ExpressionError(f"there is no `{match[0]}`")
    return ExpressionError(f"`{name}` is a function: check its arguments")


def wrong_type(kind: str, wanted: str) -> ExpressionError:
    """Return the error for an expression whose result has the wrong type. Types are in capital letters."""
    problem = "can return any type" if kind == "DYN" else f"returns {kind.lower()}"
    hint = ": compare it, as in `... == true`" if kind == "DYN" and wanted == "BOOL" else ""
    return ExpressionError(f"it must return a {wanted.lower()}, but {problem}", hint=hint)


_NOT_CONVERTED: Final = re.compile(
    r"(?:Non-CEL|Unexpected) value type for '([A-Za-z.]+)': (\w+)\.(?: \(Expected .*\))?"
)
"""Matches whole messages only. Other messages quote the object, which must not fake an unknown value."""
_NO_KEY: Final = "no such key: "
_ABSENT: Final = "check first whether the field exists, with `has(object.spec.x)` or `object.?x.orValue(...)`"
_MESSAGES: Final = tuple((re.compile(theirs, re.DOTALL), ours) for theirs, ours in NAMES.messages)


def failed(text: str) -> EvaluationError:
    """Return the error for an error message from an evaluation."""
    text = _STATUS.sub("", text)
    if (match := _NOT_CONVERTED.fullmatch(text)) is not None:
        if match[2] == type(NOT_KNOWN).__name__:
            return EvaluationError(f"{match[1]} is not known", unknown=match[1])
        if match[2] == type(HAS_NUL).__name__:
            return EvaluationError(f"{match[1]} contains a NUL character, so it can't be evaluated")
    message = next((match.expand(ours) for theirs, ours in _MESSAGES if (match := theirs.fullmatch(text))), text)
    if message.startswith(_NO_KEY):
        return EvaluationError(message, hint=_ABSENT)
    for name, shown in (*NAMES.replacements, ("int64", "int"), ("null_type", "null"), ("*opaque*", "optional")):
        message = message.replace(name, shown)
    return EvaluationError(message)
