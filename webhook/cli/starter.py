"""A commented first draft of a document of any kind, from the schema of its model.

What must be there has a placeholder marked EDIT: the model's example, or else a value of its type. What may be left out
is commented out, with its default.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.policy_schema import is_model, policy_schema, resolved
from webhook.documents.yaml_writer import dump
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Schema = dict[str, Any]

_WIDTH: Final = 100
_MARK: Final = "  # EDIT"
_PLACEHOLDERS: Final = ("changeme", "example.com/changeme", "2027-12-31", "1.34", "v1")
"""The first that a text's pattern takes."""

_FITTING: Final = {
    "allow": [{"resources": ["pods"], "labels": ["example.com/team"]}],
    "budgetSeconds": 120,
    "expression": "has(object.spec.replicas)",
    "group": "compute.coreweave.com",
    "matchExpressions": [{"key": "example.com/team", "operator": "Exists"}],
    "resource": "nodepools",
}
"""By name, examples of fields of which a value must fit others, or more than its type says."""


def starter(kind: str, name: str) -> str:
    """The text of a document of this kind; it loads as it is."""
    schema = policy_schema()
    definitions = schema["definitions"]
    draft = _Draft(definitions)
    spec = resolved(definitions[kind]["properties"]["spec"], definitions)
    return "\n".join(
        [
            *_comment(definitions[kind]["description"]),
            *_comment("EDIT marks placeholders. What is commented out has its default, or is not there."),
            f"apiVersion: {API_VERSION}",
            f"kind: {kind}",
            "metadata:",
            *_indented(_written("name", name), "  "),
            "spec:",
            *_indented(draft.fields(spec, _example(spec) or {}, spaced=True), "  "),
            "",
        ]
    )


class _Draft:
    """Writes fields as lines of YAML, without the indentation of where they go."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def fields(self, model: Schema, given: Mapping[str, Any], *, spaced: bool = False) -> Iterator[str]:
        """The fields of a mapping: those that are given or must be there, then the others, commented out."""
        fields = {name: resolved(field, self._definitions) for name, field in model["properties"].items()}
        required = model.get("required", ())
        needed = [name for name in fields if name in given or name in required]
        if spaced and not needed:
            first = next(iter(fields))
            yield from _comment(_explained(fields[first]))
            yield from self._optional(first, fields.pop(first))
        for name in needed:
            yield from _comment(_explained(fields[name]))
            if name in required:
                yield from self._required(name, fields[name], given.get(name))
            else:
                yield from _written(name, given[name], _MARK)
        for name in (each for each in fields if each not in needed):
            if spaced:
                yield ""
            yield from _comment(_explained(fields[name]))
            yield from _indented(self._optional(name, fields[name]), "# ")

    def _required(self, name: str, field: Schema, value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
        """A field with its example, or a value of its type."""
        value = _example(field, name) if value is None else value
        items = resolved(field.get("items", {}), self._definitions)
        if is_model(field):
            yield f"{name}:"
            yield from _indented(self.fields(field, value or {}), "  ")
        elif is_model(items):
            yield f"{name}:"
            for item in value or [{}]:
                yield from _as_item(self.fields(items, item))
        else:
            yield from _written(name, self._placeholder(field) if value is None else value, _MARK)

    def _optional(self, name: str, field: Schema) -> Iterator[str]:
        """A field with its example or its default, or with what it may hold."""
        items = resolved(field.get("items", {}), self._definitions)
        example = _example(field, name)
        if example is not None:
            yield from _written(name, example)
        elif is_model(field) and field.get("required") and field.get("default"):
            yield from _written(name, field["default"])
        elif is_model(field):
            yield f"{name}:"
            yield from _indented(self.fields(field, {}), "  ")
        elif is_model(items) and not field.get("default"):
            yield f"{name}:"
            yield from _as_item(self.fields(items, {}))
        elif field.get("default") is None:
            yield from _written(name, self._placeholder(field))
        else:
            yield from _written(name, field["default"])

    def _placeholder(self, field: Schema) -> Any:  # noqa: ANN401 - JSON
        """The field's example, or else a value of its type."""
        field = resolved(field, self._definitions)
        match field:
            case {"examples": [value, *_]} | {"enum": [value, *_]}:
                pass
            case {"type": "object", "properties": members}:
                value = {name: self._placeholder(members[name]) for name in field.get("required", ())}
            case {"anyOf": [first, *_]}:
                value = self._placeholder(first)
            case {"type": "array", "items": items}:
                value = [self._placeholder(items)]
            case {"type": "object"}:
                values = field.get("additionalProperties")
                key = self._placeholder(field.get("propertyNames", {}))
                value = {key: self._placeholder(values if isinstance(values, dict) else {})}
            case {"type": "integer" | "number"}:
                value = field.get("minimum", 0)
            case {"type": "boolean"}:
                value = False
            case _:
                fitting = (each for each in _PLACEHOLDERS if re.search(field.get("pattern", ""), each))
                value = next(fitting, _PLACEHOLDERS[0])
        return value


def _example(schema: Schema, name: str = "") -> Any:  # noqa: ANN401 - JSON
    return next(iter(schema.get("examples", ())), _FITTING.get(name))


def _explained(field: Schema) -> str:
    """The description, and the words of an enumeration with their meanings."""
    words = field.get("enum", ())
    if meanings := field.get("enumDescriptions"):
        listed = "".join(f"\n  {word}: {meaning}" for word, meaning in zip(words, meanings, strict=True))
    else:
        listed = f"\n  {' | '.join(words)}" if words else ""
    return f"{field['description']}{listed}"


def _comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        hanging = " " * (len(line) - len(line.lstrip()))
        yield from textwrap.wrap(line, _WIDTH, initial_indent="# ", subsequent_indent=f"# {hanging}")


def _written(name: str, value: Any, mark: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    """A member in one line, or in several if that is too long."""
    flow = dump({name: value}, flow=True, width=10_000)[1:-1]
    if len(flow) <= _WIDTH:
        yield flow + mark
        return
    first, *rest = dump({name: value}, width=_WIDTH).splitlines()
    yield first + mark
    yield from rest


def _as_item(lines: Iterable[str]) -> Iterator[str]:
    """The fields of a mapping as one item of a list."""
    begun = False
    for line in lines:
        if begun:
            yield f"    {line}"
        else:
            begun = not line.startswith("#")
            yield f"  - {line}" if begun else f"  {line}"


def _indented(lines: Iterable[str], indent: str) -> Iterator[str]:
    for line in lines:
        yield (indent + line).rstrip()
