"""Annotations of models: what pydantic checks in documents, and the JSON Schema, which editors and the reference show.

pydantic calls their methods. Nothing here imports it, because most commands read only shipped documents.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import cache, partial
from itertools import pairwise, product
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class EnumDescriptions:
    """Descriptions of an enumeration's values: ``Annotated[Literal["a", "b"], EnumDescriptions(a="...", b="...")]``.

    Editors show ``enumDescriptions`` next to the values that they suggest.
    """

    def __init__(self, **words: str) -> None:
        self.words = words

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        enumeration = handler.resolve_ref_schema(schema)
        enumeration["enumDescriptions"] = [self.words[word] for word in enumeration["enum"]]
        return schema


class Deferred:
    """An object of pydantic, which is created when pydantic reads the annotation.

    pydantic iterates over annotations of this protocol: https://github.com/annotated-types/annotated-types
    """

    __is_annotated_types_grouped_metadata__ = True

    def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
        self._create = methodcaller(name, *arguments, **options)

    def __iter__(self) -> Iterator[object]:
        import pydantic

        yield self._create(pydantic)


Check = partial(Deferred, "AfterValidator")
Before = partial(Deferred, "BeforeValidator")
Field = partial(Deferred, "Field")
JSONSchema = partial(Deferred, "WithJsonSchema")


class AnyValue:
    """Any JSON value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic import JsonValue

        return handler.generate_schema(JsonValue)


class TextPattern(msgspec.Struct, frozen=True):
    """A pattern for a string, and its description: ``TextPattern("[a-z]+", "letters")``.

    Attributes:
        pattern: the pattern that the whole string must match.
        words: the description of the pattern, for "expected <words>".
    """

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _after(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the pattern, and its ``patternErrorMessage``, which VS Code and the YAML language server show."""
        schema = handler(core_schema)
        return {**schema, "pattern": f"^(?:{self.pattern})$", "patternErrorMessage": f"expected {self.words}"}

    def _check(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"expected {self.words}; got {text!r}")
        return text


class Parsed(msgspec.Struct, frozen=True, eq=False):
    """A conversion of a document's value to the program's value: ``Annotated[Query, Parsed(str, Query)]``.

    Attributes:
        written: the type in the document, for the JSON Schema.
        parse: a function that returns the value, or raises ValueError.
    """

    written: Any
    parse: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _after(self.parse, handler(self.written))  # with constraints such as `min_length`


def _after(function: Callable[[Any], Any], schema: CoreSchema) -> CoreSchema:
    from pydantic_core import core_schema

    return core_schema.no_info_after_validator_function(function, schema)


def describe_fields(model: type, names: Iterable[tuple[str, str]], properties: dict[str, Any]) -> None:
    """Add the docstrings of a model's fields, which are pairs of name and alias, to the fields' schemas.

    pydantic's ``use_attribute_docstrings`` would read the source files at every start.
    """
    owners = [owner for owner in model.__mro__ if owner.__module__.startswith("webhook.")]
    for owner, (name, alias) in product(owners, list(names)):
        if text := _docstrings(owner.__module__).get((owner.__name__, name)):
            properties[alias].setdefault("description", text)


@cache
def _docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings of all class attributes in a module, by class and attribute, each on one line."""
    classes = ast.parse(inspect.getsource(sys.modules[module])).body
    return {
        (node.name, ast.unparse(field.target)): " ".join(str(text.value.value).split())
        for node in classes
        if isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
