"""What the library says of an expression that it refuses, in words that say what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.cel import ExpressionError
from webhook.cel.functions import ADDRESS, NETWORK, QUANTITY, URL

if TYPE_CHECKING:
    from collections.abc import Collection

_ERROR: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_TOO_DEEP: Final = re.compile(r"max recursion depth of \d+|recursion limit exceeded")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")
_SYNTAX: Final = "Syntax error: "
_OF_TYPES: Final = re.compile(r"found no matching overload for '([^']+)' applied to '\((.*)\)'")
_OF_A_VALUE: Final = re.compile(r"expression of type '(.+)' cannot be the operand of a select operation")
_STRINGS: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|//[^\n]*")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_CALLED: Final = (
    ("map(bool, string)", QUANTITY),
    ("map(int, string)", ADDRESS),
    ("map(bool, list(string))", NETWORK),
    ("map(int, list(string))", URL),
    ("null_type", "null"),
    ("dyn", "anything"),
)
"""What the type checker calls the types of our own, and others."""

_MACROS: Final = {
    **dict.fromkeys(("all", "exists", "exists_one", "existsOne", "filter"), "x, x == 1"),
    "map": "x, x + 1",
    "sortBy": "x, x.name",
    **dict.fromkeys(("optMap", "optFlatMap"), "x, x + 1"),
}
"""Functions that are none to the type checker, unless they have a name for their items."""

_ELSEWHERE: Final = {
    **dict.fromkeys(("self", "input", "review", "resource"), "object"),
    **dict.fromkeys(("oldSelf", "old"), "oldObject"),
    **dict.fromkeys(("any", "some", "contains_any"), "exists"),
    **dict.fromkeys(("every", "forall"), "all"),
    **dict.fromkeys(("len", "length", "count"), "size"),
    **dict.fromkeys(("match", "regex", "test"), "matches"),
    **dict.fromkeys(("nil", "None", "undefined", "NULL", "Null"), "null"),
    **dict.fromkeys(("True", "TRUE"), "true"),
    **dict.fromkeys(("False", "FALSE"), "false"),
    **dict.fromkeys(("lower", "toLower", "toLowerCase", "to_lower"), "lowerAscii"),
    **dict.fromkeys(("upper", "toUpper", "toUpperCase", "to_upper"), "upperAscii"),
    **dict.fromkeys(("hasPrefix", "startswith", "has_prefix"), "startsWith"),
    **dict.fromkeys(("hasSuffix", "endswith", "has_suffix"), "endsWith"),
    **dict.fromkeys(("include", "includes"), "contains"),
    **dict.fromkeys(("user", "userInfo"), "request.userInfo"),
    "operation": "request.operation",
    "dryRun": "request.dryRun",
    "namespace": "request.namespace",
}
"""What other languages call it."""

_NOT_HERE: Final = frozenset({"authorizer", "format", "isSemver", "semver", "unwrap", "unwrapOpt"})
_ONLY_KUBERNETES: Final = ": Kubernetes has it, and spotgate has not"

_OPERATORS: Final = (
    (re.compile(r"={3}$|(?<![=!<>])=(?![=~>])$"), "to compare, write `==`"),
    (re.compile(r"=~$"), "write `x.matches('...')`"),
    (re.compile(r"=>$"), "write `>=`, or `list.all(x, x == 1)`"),
    (re.compile(r"->$"), "write `list.all(x, x == 1)`"),
    (re.compile(r"=<$"), "write `<=`"),
    (re.compile(r"<>$"), "write `!=`"),
    (re.compile(r"[.[]\s*\*$"), "write `list.all(x, x == 1)`, or `list.exists(x, x == 1)`"),
    (re.compile(r"\bin\s*\([^()]*,$"), "a list is written `['a', 'b']`"),
    (re.compile(r"(\band|(?<!&)&)$"), "write `&&`"),
    (re.compile(r"(\bor|(?<!\|)\|)$"), "write `||`"),
    (re.compile(r"\bnot\s+in$"), "write `!(x in list)`"),
    (re.compile(r"\bnot\s+\w*$"), "for `not`, write `!`"),
    (re.compile(r"\bnot$"), "write `!(x in list)`"),
    (re.compile(r"\b(then|else)$"), "write `condition ? a : b`"),
    (re.compile(r"\?\?$"), "write `object.?x.orValue(...)`"),
    (re.compile(r"#$|/\*$"), "a comment begins with `//`"),
    (re.compile(r"[\u2018\u2019\u201c\u201d`]\w*`?$"), "a string is in ' or \""),
    (re.compile(r"(?<=\w)\s*\.\d+$"), "a key that is no name is written `['1']`"),
    (re.compile(r"(?<![\w.])[\d.]+[A-Za-z]\w*$"), "write `quantity('1Gi')`, or `duration('5m')`"),
    (re.compile(r"\.\s*(in|true|false|null)$"), "a word of CEL as a key is written `['in']`"),
)
"""What an expression has up to where it is wrong, and what is meant."""


_OVERLOADS: Final = (
    (re.compile(r".*optional_type.*"), "what is optional is taken out with `.orValue(...)`"),
    (re.compile(rf"[=!]= .*{QUANTITY}.*"), "write `== quantity('...')`"),
    (
        re.compile(rf"[<>]=? .*{QUANTITY}.*"),
        "quantities are compared by `a.isGreaterThan(b)`, `a.isLessThan(b)`, `a.compareTo(b) <= 0`",
    ),
    (re.compile(r"in bool.*"), "write `!(x in list)`"),
    (re.compile(r"in .*string"), "write `text.contains('a')`"),
    (re.compile(r"in .*, list\(.*\)"), "the items of the list are of another type"),
    (re.compile(r"in .*"), "it takes a list or a map"),
    (re.compile(r"contains list.*"), "of a list, write `'a' in list`"),
    (re.compile(r"\? : .*"), "both sides are of one type"),
    (re.compile(r"(&&|\|\||!) .*"), "compare first, as in `... == true`"),
    (re.compile(r"[<>]=? bool, .*"), "write `a < x && x < b`"),
    (re.compile(r"[=!]= (.*, null|null, .*)"), "that is never null"),
    (re.compile(r"\W+ .*"), "convert one side, with `int(...)`, `double(...)` or `string(...)`"),
)
"""Operators and functions with the types that they are given, and what is meant; the first counts."""


class _Mistake(NamedTuple):
    """What the library says, and where in the expression, in characters; -1 where it does not say."""

    offset: int
    problem: str


def refused(text: str, expression: str, lines_before: int, functions: Collection[str]) -> ExpressionError:
    """The first mistake in the expression itself.

    Args:
        text: what the library says.
        expression: what was compiled.
        lines_before: of what else was compiled.
        functions: what may be called.
    """
    mistakes = [
        _Mistake(_offset(expression, int(found[1]) - lines_before, int(found[2])), found[3])
        for found in _ERROR.finditer(text)
    ]
    if _TOO_DEEP.search(text):
        deep = "it is nested too deeply, where fields of fields and each variable that it reads count too: split it"
        return ExpressionError(deep)
    if not mistakes:
        return ExpressionError(_STATUS.sub("", text))
    # Of `list.al(x, ...)` it names `x` before `al`, without which `x` would be known.
    undeclared = [each for each in mistakes if _UNDECLARED.search(each.problem)]
    mistake = min(undeclared, default=mistakes[0])
    if mistake.problem.startswith(_SYNTAX):
        return _syntax(mistake, expression)
    if undeclared:
        return _unknown(mistake, expression, functions)
    return _other(mistake)


def wrong_type(kind: str, wanted: str, expression: str) -> ExpressionError:
    """It gives something else than what it must give; types in capital letters."""
    given = "anything" if kind == "DYN" else kind.lower()
    hint = ""
    if kind == "DYN":
        hint = ": compare it, as in `... == true`" if wanted == "BOOL" else ": write `string(...)`"
    elif kind == "STRING" and _STRINGS.fullmatch(expression.strip()):
        hint = ": take away the quotes around it"
    elif kind.startswith("LIST"):
        hint = ": compare it, as in `... .size() == 0`"
    return ExpressionError(f"it must give a {wanted.lower()}, and gives {given}", hint=hint)


def _offset(expression: str, line: int, column: int) -> int:
    lines = expression.split("\n")
    if not 1 <= line <= len(lines):
        return -1
    return sum(len(each) + 1 for each in lines[: line - 1]) + column - 1


def _unknown(mistake: _Mistake, expression: str, functions: Collection[str]) -> ExpressionError:
    found = _UNDECLARED.search(mistake.problem)
    name = found[1].partition(".")[0] if found else ""
    if name != "has" and re.search(r"\bhas\s*$", expression[: mistake.offset]):
        offset = expression.find(name, mistake.offset)  # it says where the bracket is
    else:
        offset = expression.rfind(name, 0, mistake.offset + len(name))
    before, after = expression[:offset].rstrip(), expression[offset + len(name) :].lstrip()
    if name in _MACROS:
        as_in = f"`list.{name}({_MACROS[name]})`"
        return ExpressionError(f"`{name}` takes a name and an expression, as in {as_in}", offset=offset)
    if name == "has":
        return ExpressionError("`has` takes one field, as in `has(object.spec.x)`", offset=offset)
    if name in _ELSEWHERE:
        return ExpressionError(f"there is no `{name}`", hint=f": write `{_ELSEWHERE[name]}`", offset=offset)
    hint = ""
    if before[-1:] in {"/", "-"} and re.search(r"\.[\w.]+$", before[:-1]):
        hint = f"; a key with `{before[-1]}` in it is written in brackets: `labels['example.com/name']`"
    elif before.endswith(("==", "!=", "[", ",", "in")) and after[:1] not in {".", "(", "["}:
        hint = f"; a string is in quotes: `'{name}'`"
    if name in functions:
        return _function(name, before, after, hint, offset)
    if name in _NOT_HERE:
        return ExpressionError(f"there is no `{name}`", hint=_ONLY_KUBERNETES, offset=offset)
    return ExpressionError(f"there is no `{name}`", name, hint=hint, offset=offset)


def _function(name: str, before: str, after: str, hint: str, offset: int) -> ExpressionError:
    """One that is there, and not as it is written here."""
    if after.startswith("("):
        hint = "; a function of a value is called on it, as in `'abc'.startsWith('a')`" if before[-1:] != "." else ""
        return ExpressionError(f"`{name}` does not take what it is given here", hint=hint, offset=offset)
    if (field := re.match(r"\.\s*(\w+)", after)) is not None:
        hint = _ONLY_KUBERNETES if {name, field[1]} & _NOT_HERE else ""
        return ExpressionError(f"there is no `{name}.{field[1]}`", hint=hint, offset=offset)
    hint = hint or "; a function is called with brackets, as in `list.size()`"
    return ExpressionError(f"there is no `{name}`", hint=hint, offset=offset)


def _syntax(mistake: _Mistake, expression: str) -> ExpressionError:
    offset, problem = mistake.offset, mistake.problem.removeprefix(_SYNTAX).partition(" expecting ")[0]
    if "{{" in expression:
        text = "`{{ }}` is of templates (Helm, Go): an expression names values as they are, `object.metadata.name`"
        return ExpressionError(text, offset=expression.index("{{"))
    wrong = problem.partition(" at: '" if " at: '" in problem else " '")[2].removesuffix("'").rstrip()
    if problem.startswith("missing"):
        wrong = problem.rpartition(" at '")[2].removesuffix("'")
    if problem.startswith("token recognition") and wrong[:1] in {"'", '"'}:
        if "\\" in expression[offset:].partition("\n")[0]:
            text = "the string that begins here has an escape that CEL has not"
            hint = ": a backslash is written `\\\\`, or in a raw string, as `r'\\d'`"
            return ExpressionError(text, hint=hint, offset=offset)
        return ExpressionError("the string that begins here is not closed", offset=offset)
    if wrong != "<EOF>":
        so_far = expression[: offset + len(wrong)].rstrip()
        hint = next((f": {hint}" for operator, hint in _OPERATORS if operator.search(so_far)), "")
        return ExpressionError(f"`{wrong}` is not expected here", hint=hint, offset=offset)
    if (opened := _unclosed(expression)) is not None:
        bracket = expression[opened]
        return ExpressionError(f"`{bracket}` is not closed: a `{_CLOSING[bracket]}` is missing", offset=opened)
    hint = ": an optional field is written `object.?x`" if re.search(r"\w\?\.", expression) else ""
    if not hint and "?" in _STRINGS.sub("", expression):
        hint = ": a condition is written `condition ? a : b`"
    return ExpressionError("it ends too early", hint=hint, offset=len(expression.rstrip()) - 1)


def _unclosed(expression: str) -> int | None:
    """Where a bracket is that is not closed."""
    opened: list[int] = []
    for offset, character in enumerate(_STRINGS.sub(lambda found: " " * len(found[0]), expression)):
        if character in _CLOSING:
            opened.append(offset)
        elif opened and character == _CLOSING[expression[opened[-1]]]:
            opened.pop()
    return opened[-1] if opened else None


def _other(mistake: _Mistake) -> ExpressionError:
    offset = mistake.offset if mistake.offset >= 0 else None
    problem = (
        mistake.problem.replace("Matches", "matches")
        .replace("Substring", "substring")
        .replace(" (in container '')", "")
    )
    for ours, called in _CALLED:
        problem = re.sub(rf"\b{re.escape(ours)}(?!\w)", called, problem)
    if (found := _OF_TYPES.search(problem)) is not None:
        return _overload(found[1], found[2], offset)
    if (found := _OF_A_VALUE.search(problem)) is not None:
        hint = "; a function is called with brackets, as in `list.size()`"
        return ExpressionError(f"a value of type {found[1]} has no fields", hint=hint, offset=offset)
    if "argument must be a field selection" in problem:
        text = "`has` takes a field, as in `has(object.spec.x)`"
        hint = "; of a key, write `'a' in object.metadata.labels`, of a variable, `object != null`"
        return ExpressionError(text, hint=hint, offset=offset)
    if "variable name must be a simple identifier" in problem:
        macro = problem.partition("(")[0]
        text = f"`{macro}` takes a name and an expression, as in `list.{macro}({_MACROS.get(macro, 'x, x == 1')})`"
        return ExpressionError(text, hint="; conditions are joined by `&&`", offset=offset)
    if (word := problem.removeprefix("reserved identifier: ")) != problem:
        hint = f": write `{_ELSEWHERE[word]}`" if word in _ELSEWHERE else ""
        hint = ": write `condition ? a : b`" if word in {"if", "else"} else hint
        return ExpressionError(f"`{word}` is a word of CEL, and no name", hint=hint, offset=offset)
    return ExpressionError(problem, offset=offset)


def _overload(function: str, types: str, offset: int | None) -> ExpressionError:
    operator = function.strip("_@") if function != "_?_:_" else "? :"
    hint = next((f": {hint}" for of, hint in _OVERLOADS if of.fullmatch(f"{operator} {types}")), "")
    return ExpressionError(f"`{operator}` does not take ({types})", hint=hint, offset=offset)
