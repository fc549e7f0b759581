"""The language as cel-expr-python has it (Google's cel-cpp): the only module that knows of that library.

What must be known of it (0.1.3), and is kept from everybody else:

- A null must never be taken out as a result: each time takes a reference to None that is not its own, and after some
  thousand the interpreter ends. So only Booleans and strings are.
- A string is cut at a NUL character. A value with one in it can't be judged.
- It stops after 10,000 rounds of all loops together; `webhook.cel.cost` sees to the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from cel_expr_python import cel  # type: ignore[import-untyped]

from webhook.cel import HAS_NUL, NOT_KNOWN, EvaluationError, ExpressionError
from webhook.cel.cost import BUDGET_NS, ROUNDS_AT_MOST, cost_of
from webhook.cel.functions import ADDRESS, FUNCTIONS, NETWORK, QUANTITY, URL
from webhook.cel.meter import LEFT, TOO_LONG, metered
from webhook.cel.tree import Call, Const, Ident, Select, children, read_tree, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.cel import Expression, Values
    from webhook.cel.cost import Cost
    from webhook.cel.tree import Node

LENGTH_AT_MOST: Final = 10_000
"""Characters of one expression with everything it is bound to."""
SIZE_AT_MOST: Final = 1024 * 1024
"""Bytes of JSON: more takes 60 ms to convert, and no list fits into etcd that has much more."""

_EXTENSIONS: Final = ("bindings", "lists", "optional", "sets", "strings", "two-var-comprehensions")
"""Those that Kubernetes has too, and ``cel.bind``, which is not for policies: bound names are made with it."""

_STANDARD: Final = (
    *("all", "exists", "exists_one", "filter", "map", "has", "existsOne", "transformList"),
    *("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint", "size"),
    *("charAt", "contains", "endsWith", "format", "indexOf", "join", "lastIndexOf", "lowerAscii", "matches", "replace"),
    *("reverse", "split", "startsWith", "substring", "trim", "upperAscii", "strings", "sets", "lists", "optional"),
    *("distinct", "first", "flatten", "last", "slice", "sort", "sortBy", "orValue", "hasValue", "value", "optMap"),
    *("getDate", "getDayOfMonth", "getDayOfWeek", "getFullYear", "getHours", "getMinutes", "getMonth", "getSeconds"),
)

_CONFIGURATION: Final = "\n".join(
    (
        *("name: kubernetes", "extensions:"),
        *(f"  - name: {name}" for name in _EXTENSIONS),
    )
)

_TYPES: Final = {
    "string": cel.Type.STRING,
    "bool": cel.Type.BOOL,
    "int": cel.Type.INT,
    "double": cel.Type.DOUBLE,
    "dyn": cel.Type.DYN,
    "list": cel.Type.LIST,
    "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    "strings": cel.Type.List(cel.Type.STRING),
    "query": cel.Type.Map(cel.Type.STRING, cel.Type.List(cel.Type.STRING)),
    QUANTITY: cel.Type.Map(cel.Type.BOOL, cel.Type.STRING),
    ADDRESS: cel.Type.Map(cel.Type.INT, cel.Type.STRING),
    NETWORK: cel.Type.Map(cel.Type.BOOL, cel.Type.List(cel.Type.STRING)),
    URL: cel.Type.Map(cel.Type.INT, cel.Type.List(cel.Type.STRING)),
}
_CALLED: Final = (
    ("map(bool, string)", QUANTITY),
    ("map(int, string)", ADDRESS),
    ("map(bool, list(string))", NETWORK),
    ("map(int, list(string))", URL),
)
"""What the type checker calls the types of our own."""

VARIABLES: Final = {
    "object": cel.Type.DYN,
    "oldObject": cel.Type.DYN,
    "request": cel.Type.DYN,
    "request.userInfo": cel.Type.DYN,
    "namespaceObject": cel.Type.DYN,
    "namespaceObject.metadata.name": cel.Type.DYN,
    "pools": cel.Type.LIST,
}
"""A longer name goes before a shorter one: what is known of something stays known where the rest is not."""

KNOWN_FIELDS: Final = {
    "request": ("operation", "kind", "resource", "subResource", "name", "namespace", "userInfo", "dryRun"),
    "request.kind": ("group", "version", "kind"),
    "request.resource": ("group", "version", "resource"),
    "request.userInfo": ("username", "groups"),
    "namespaceObject": ("metadata",),
    "namespaceObject.metadata": ("name", "labels"),
}
"""What is known of the request and its namespace: less than a ValidatingAdmissionPolicy is shown."""

_ERROR: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_ASSIGNED: Final = re.compile(r"token recognition error at: '=")
_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter", "sortBy"})
"""Functions that are none to the type checker, unless they have a name for their items."""
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NOT_CONVERTED: Final = re.compile(
    rf"(?:Non-CEL|Unexpected) value type for '({'|'.join(map(re.escape, VARIABLES))})': (\w+)\.(?: \(Expected .*\))?"
)
"""The whole of a message: others have text of the object in them, which must not pass for what is not known."""
_NO_IMPLEMENTATION: Final = re.compile(r"reference resolve step for (\S+)")
_HALF_THERE: Final = {"cel.@mapInsert": "neither transformMap() nor transformMapEntry()"}
"""Macros that compile, and whose function nobody implements."""
_KINDS: Final = {bool: "BOOL", str: "STRING"}


class _Values:
    """An activation, which is the library's name for the values of variables; and what was spent on them."""

    __slots__ = ("_raw", "activation", "items", "size", "spent", "unknown")

    def __init__(self, activation: cel.Activation, size: int, items: int, raw: bytes, unknown: frozenset[str]) -> None:
        self.activation = activation
        self.size = size
        self.items = items
        self.unknown = unknown
        self.spent = 0.0
        self._raw = raw

    def pieces(self, separator: str) -> int:
        """As `webhook.cel.cost.Extent` has it; a character that is escaped in JSON may be any."""
        if not self._raw:
            return self.size
        # Of what is not in it, the pools, no object says what it is like: their items count.
        return self._raw.count(separator.encode()) + self._raw.count(b"\\") + self.items


class _Expression:
    """A compiled expression."""

    __slots__ = ("_cost", "_expression", "_hidden", "_type", "names")

    def __init__(
        self, expression: cel.Expression, names: frozenset[str], hidden: frozenset[str], cost: Cost, kind: str
    ) -> None:
        self._expression = expression
        self._cost = cost
        self._type = kind
        self._hidden = hidden
        self.names = names

    def evaluate(self, values: Values) -> bool | str:
        assert isinstance(values, _Values)  # noqa: S101 - there is one library
        if values.size > SIZE_AT_MOST:
            raise EvaluationError(f"more than {SIZE_AT_MOST // 1024} KiB are too much to judge")
        for name in self._hidden & values.unknown:
            raise EvaluationError(f"{name} is not known", unknown=name)
        spent = values.spent + self._cost.nanoseconds(values)
        if spent > BUDGET_NS:
            raise EvaluationError(f"it {TOO_LONG}, which has {values.size} bytes and {values.items} items")
        LEFT.set(BUDGET_NS - spent)
        try:
            result = self._expression.eval(values.activation)
        except RuntimeError as error:
            raise _failed(str(error)) from None
        finally:
            values.spent = BUDGET_NS - LEFT.get()
        kind = result.type().name()
        if kind == "ERROR":
            raise _failed(repr(result))
        if kind != self._type:
            raise EvaluationError(f"it gave {kind.lower()}, no {self._type.lower()}")
        value: bool | str = result.value()
        return value


def _failed(text: str) -> EvaluationError:
    text = _STATUS.sub("", text).replace("Matches", "matches")
    if "Iteration budget exceeded" in text:
        return EvaluationError(f"its loops took more than {ROUNDS_AT_MOST} rounds")
    if (found := _NOT_CONVERTED.fullmatch(text)) is not None:
        if found[2] == type(NOT_KNOWN).__name__:
            return EvaluationError(f"{found[1]} is not known", unknown=found[1])
        if found[2] == type(HAS_NUL).__name__:
            return EvaluationError(f"{found[1]} has a NUL character in it, and can't be judged")
    text = re.sub(r'^Key not found in map : "?(.*?)"?$', r"no such key: \1", text)
    text = re.sub(r"^Index error: index=(-?\d+) size=\d+$", r"index out of bounds: \1", text)
    text = re.sub(r"^No matching overloads found : ", "no such overload: ", text)
    return EvaluationError(text.replace("int64", "int").replace("_type)", ")"))


def _declared() -> list[cel.FunctionDecl]:
    overloads: dict[str, list[cel.Overload]] = {}
    for number, function in enumerate(FUNCTIONS):
        overload = cel.Overload(
            f"{function.name}_{number}",
            return_type=_TYPES[function.result],
            parameters=[_TYPES[each] for each in function.parameters],
            is_member=function.member,
            impl=metered(function.call),
        )
        overloads.setdefault(function.name, []).append(overload)
    return [cel.FunctionDecl(name, each) for name, each in overloads.items()]


class CelCpp:
    """The language; made once."""

    functions = (*_STANDARD, *(function.name for function in FUNCTIONS if function.name not in {"Matches", "Has"}))

    def __init__(self) -> None:
        self._environment = cel.NewEnv(
            config=cel.NewEnvConfigFromYaml(_CONFIGURATION),
            variables=VARIABLES,
            functions=_declared(),
        )
        self._nothing = self.values(dict.fromkeys(VARIABLES, NOT_KNOWN), 0, 0)
        self._nothing.unknown = frozenset()  # so that everything is made ready to run

    def compile(self, text: str, result: type[bool | str] | None, bound: Mapping[str, str]) -> Expression:
        """As `webhook.cel.Language` has it."""
        before = "".join(f"cel.bind({name},\n{value}\n,\n" for name, value in bound.items())
        whole = f"{before}{text}\n{')' * len(bound)}"
        if len(whole) > LENGTH_AT_MOST:
            raise ExpressionError(f"with what it is bound to it has more than {LENGTH_AT_MOST} characters")
        try:
            # What only parses with what is around it is no expression.
            self._environment.compile(text, disable_check=True)
        except RuntimeError as error:
            raise _refused(str(error), 0) from None
        try:
            expression = self._environment.compile(whole)
        except RuntimeError as error:
            raise _refused(str(error), before.count("\n")) from None
        wanted = _KINDS[result] if result is not None else ""
        kind = expression.return_type().name()
        if wanted and kind != wanted:
            raise ExpressionError(_wrong_type(kind, wanted))
        tree = read_tree(expression.serialize())
        _check_fields(tree)
        hidden = frozenset(_hidden(tree))
        compiled = _Expression(expression, frozenset(_names(tree)), hidden, cost_of(tree), wanted)
        self._try(compiled)
        return compiled

    def _try(self, compiled: _Expression) -> None:
        """A function that has no implementation is found when the expression is made ready to run."""
        try:
            compiled.evaluate(self._nothing)
        except EvaluationError as error:
            if (found := _NO_IMPLEMENTATION.search(str(error))) is not None:
                name = _HALF_THERE.get(found[1], f"no {found[1]}()")
                raise ExpressionError(f"{name} is there") from None

    def values(self, values: Mapping[str, Any], size: int, items: int, raw: bytes = b"") -> _Values:
        """As `webhook.cel.Language` has it."""
        unknown = frozenset(name for name, value in values.items() if value is NOT_KNOWN)
        return _Values(self._environment.Activation(values), size, items, raw, unknown)


def _refused(text: str, lines_before: int) -> ExpressionError:
    """The first mistake in the expression itself, and where it is there."""
    mistakes = [(int(found[1]) - lines_before, int(found[2]), found[3]) for found in _ERROR.finditer(text)]
    if not mistakes:
        return ExpressionError(_STATUS.sub("", text))
    # Of `list.al(x, ...)` it names `x` before `al`, without which `x` would be known.
    line, column, problem = min((each for each in mistakes if _UNDECLARED.search(each[2])), default=mistakes[0])
    problem = problem.replace("Matches", "matches")
    for ours, called in _CALLED:
        problem = problem.replace(ours, called)
    problem = problem.replace(" (in container '')", "")
    where = f" (at column {column})" if line == 1 else f" (at line {line}, column {column} of the expression)"
    undeclared = _UNDECLARED.search(problem)
    if undeclared is None:
        hint = "; to compare, write ==" if _ASSIGNED.search(problem) else ""
        return ExpressionError(f"{problem.partition(' expecting ')[0]}{where}{hint}")
    name = undeclared[1].partition(".")[0]
    if name in _MACROS:
        return ExpressionError(f"`{name}` takes a name and what holds of it, as in `list.{name}(x, x == 1)`{where}")
    return ExpressionError(f"there is no `{name}`{where}", name)


def _wrong_type(kind: str, wanted: str) -> str:
    hint = ""
    given = "anything" if kind == "DYN" else kind.lower()
    if kind == "DYN":
        hint = ": compare it, as in `... == true`" if wanted == "BOOL" else ": write `string(...)`"
    return f"it must give a {wanted.lower()}, and gives {given}{hint}"


def _names(node: Node) -> Iterator[str]:
    """The variables in an expression; of one with a longer name only that."""
    if isinstance(node, Ident | Select) and node.name in VARIABLES:
        yield node.name
        return
    for child in children(node):
        yield from _names(child)


def _hidden(node: Node) -> Iterator[str]:
    """What is read of a part of the request that has a name of its own, and not by that name."""
    match node:
        case Ident("request") | Call("_?._", (Ident("request"), Const("userInfo"))):
            yield "request.userInfo"
            return
        case Select(Ident("request")) | Call("_?._", (Ident("request"), Const(str()))):
            return
    for child in children(node):
        yield from _hidden(child)


def _check_fields(tree: Node) -> None:
    """Fields of the request and the namespace that nobody here knows are a mistake, and no absent fields."""
    for node in walk(tree):
        match node:
            case Select(operand, field) | Call("_?._", (operand, Const(str(field)))):
                path = _path(operand)
                if path in KNOWN_FIELDS and field not in KNOWN_FIELDS[path]:
                    there = ", ".join(KNOWN_FIELDS[path])
                    raise ExpressionError(f"there is no `{path}.{field}`, only {there}")


def _path(node: Node) -> str:
    match node:
        case Ident(name):
            return name
        case Select(operand, field) | Call("_?._", (operand, Const(str(field)))):
            return f"{_path(operand)}.{field}"
        case _:
            return ""
