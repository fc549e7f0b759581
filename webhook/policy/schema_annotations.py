"""Annotations of models for the JSON Schema, which editors and the reference show."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.json_schema import JsonSchemaValue


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


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A pattern for a string, and its description: ``TextPattern("[a-z]+", "letters")``.

    Attributes:
        pattern: the pattern that the whole string must match.
        words: the description of the pattern, for "expected <words>".
    """

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the pattern, and its ``patternErrorMessage``, which VS Code and the YAML language server show."""
        schema = handler(core_schema)
        return {**schema, "pattern": f"^(?:{self.pattern})$", "patternErrorMessage": f"expected {self.words}"}

    def _check(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"expected {self.words}; got {text!r}")
        return text


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A conversion of a document's value to the program's value: ``Annotated[Query, Parsed(str, Query)]``.

    Attributes:
        written: the type in the document, for the JSON Schema.
        parse: a function that returns the value, or raises ValueError.
    """

    written: Any
    parse: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        as_text = core_schema.plain_serializer_function_ser_schema(str)
        schema = handler(self.written)  # with constraints such as `min_length`
        return core_schema.no_info_after_validator_function(self.parse, schema, serialization=as_text)


def describe_fields(model: type[BaseModel], properties: dict[str, Any]) -> None:
    """Add the docstrings of a model's fields to the fields' schemas.

    pydantic's ``use_attribute_docstrings`` would read the source files at every start.
    """
    for owner in model.__mro__[: model.__mro__.index(BaseModel)]:
        for name, field in model.model_fields.items():
            if text := _docstrings(owner.__module__).get((owner.__name__, name)):
                properties[field.alias or name].setdefault("description", text)


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
