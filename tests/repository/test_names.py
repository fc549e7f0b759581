"""Each public name has one type, so that a name is never ambiguous."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def _types(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the public classes and type aliases, each with its definition."""
    for statement in module.body:
        match statement:
            case ast.ClassDef(name=name):
                yield name, f"class {name}"
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(value, ast.Call):
                yield name, ast.unparse(value)
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"), value=ast.expr() as value
            ):
                yield name, ast.unparse(value)


def test_no_two_public_types_share_a_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    meant: dict[str, set[str]] = defaultdict(set)
    for file in (*ROOT.glob("webhook/**/*.py"), *ROOT.glob("certs/*.py")):
        where = str(file.relative_to(ROOT))
        for name, stands_for in _types(ast.parse(file.read_text())):
            if name[0].isupper():
                modules[name].append(where)
                # Several modules may define an equal alias: JSON is the same everywhere.
                meant[name].add(where if stands_for.startswith("class ") else stands_for)
    assert {name: modules[name] for name, definitions in meant.items() if len(definitions) > 1} == {}
