"""No function decides by the wording of a message: reasons are values, and one module renders each."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
MESSAGES: Final = frozenset(
    {"because", "blocked", "closed", "demand", "detail", "fix", "message", "problem", "reason", "remedy", "sentence"}
    | {"unread", "unusable", "why", "why_not", "why_unknown"}
)
"""The names of attributes, variables, and functions that contain texts for people."""
READS: Final = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index", "count", "match"}
    | {"removeprefix", "removesuffix", "replace", "search"}
)
ALLOWED: Final = {
    "cel/errors.py naming": "the module that renders the problem",
    "cel/mistakes.py failed": "the CEL library's text, which gives no value",
    "cel/mistakes.py refused": "the CEL library's text, which gives no value",
    "commands/fn/command.py error": "argparse's text, with the names of data in place of flags",
    "commands/test/case.py differences": "a policy test expects a part of a message",
    "engine/response.py _on_one_line": "the YAML that a fix ends in has line breaks, and a warning has none",
    "formats/gitlab.py _description": "only a capital letter",
    "inputs/rendering.py _fail": "the texts of Helm and Kustomize",
    "model/review.py of": "msgspec's text, which gives no value",
    "policy/common.py _check_name": "the problem of a longer pattern, with the pattern as written",
    "rehearse/runs/quiet.py _is_judged": "the reason of a condition is a value of the Kubernetes API",
    "rehearse/runs/tally.py causes_of": "the scheduler's text, which gives no value",
    "rehearse/runs/watching.py refusals": "the controllers' text, without its beginning",
    "rehearse/runs/watching.py uncountable": "the reason of a condition is a value of the Kubernetes API",
    "rules/node_pool_rules/karpenter.py _are_reasons": "the reasons of a budget are values of Karpenter",
    "rules/node_pool_rules/checks.py judge": "the problem of a query begins with its field",
    "rules/node_pool_rules/rule.py _judge_pool": "the problem of a pool begins with its field",
    "server/http/connections.py _handshake": "OpenSSL's name of an error is a value",
}
"""The functions that read a text, and why they may."""


def is_message(node: ast.expr) -> bool:
    """Return whether an expression is a message: ``x.reason``, ``reason``, ``str(error)``."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in {"error", "errors"}
        case ast.Call(func=ast.Attribute(value=value)) | ast.Subscript(value=value):
            return is_message(value)
    return getattr(node, "attr", getattr(node, "id", "")) in MESSAGES


def reads(node: ast.AST) -> bool:
    """Return whether a node compares, slices, or searches a message, other than to limit it or to split its lines."""
    match node:
        case ast.Call(func=ast.Attribute(attr="split"), args=[] | [ast.Constant(value="\n")]):
            return False
        case ast.Call(func=ast.Attribute(attr=method, value=value)):
            return method in READS and is_message(value)
        case ast.Subscript(value=value, slice=ast.Slice(upper=upper)):
            return is_message(value) and not isinstance(upper, ast.Name)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]) if ast.unparse(left) != r"'\n'":
            return is_message(right) or (is_message(left) and ast.unparse(right).isupper())
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=str(text))]):
            return bool(text) and is_message(left)
    return False


def readers(code: str) -> Iterator[str]:
    """Yield the name of each function that decides by a message."""
    functions = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    yield from (function.name for function in functions if any(map(reads, ast.walk(function))))


def test_no_function_decides_by_the_wording_of_a_message() -> None:
    files = {str(file.relative_to(ROOT / "webhook")): file for file in (ROOT / "webhook").rglob("*.py")}
    found = {f"{name} {function}" for name, file in files.items() for function in readers(file.read_text())}
    assert found == ALLOWED.keys()


def test_a_comparison_with_a_message_is_found() -> None:
    for text in ('x.reason.startswith("no pool")', '"403" in str(error)', "reason[:9]", 'why == "no pool"'):
        assert list(readers(f"def decides():\n    return {text}")) == ["decides"]
    assert not list(readers('def renders():\n    return f"{x.reason}: {why}" or x.reason is None'))
