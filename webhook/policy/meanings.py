"""What a model says to editors and to the reference beside its types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import core_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True, eq=False)
class Meanings:
    """Annotates an enumeration: ``Annotated[Literal["a", "b"], Meanings({"a": "...", "b": "..."})]``.

    Editors show ``enumDescriptions`` beside the words that they offer.
    """

    words: dict[str, str]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        enumeration = handler.resolve_ref_schema(schema)
        enumeration["enumDescriptions"] = [self.words[word] for word in enumeration["enum"]]
        return schema


@dataclass(frozen=True, slots=True)
class Shape:
    """Annotates a text that must match a pattern, which people are told in words: ``Shape("[a-z]+", "letters")``.

    Loader and editor judge by the same pattern, so it is one that Python and JavaScript read alike: digits are
    ``[0-9]``, for Python's class of them knows more.

    Attributes:
        pattern: what the whole text matches.
        words: what that is: "expected <words>".
        problem: what the loader says of a text that does not match, if it knows better.
    """

    pattern: str
    words: str
    problem: Callable[[str], str] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """``patternErrorMessage`` is what VS Code and the YAML language server show."""
        schema = handler(core_schema)
        own = {"pattern": f"^(?:{self.pattern})$", "patternErrorMessage": f"expected {self.words}"}
        return {**schema, "allOf": [own]} if "pattern" in schema else {**schema, **own}

    def _check(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(self.problem(text) if self.problem else f"expected {self.words}; got {text!r}")
        return text


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Annotates what a function checks, with as much of that as JSON Schema can say.

    Attributes:
        check: gives the value back, or raises ValueError.
        said: keywords for the schema.
    """

    check: Callable[[Any], Any]
    said: dict[str, JsonValue]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core_schema), **self.said}


_EMPTY: Final[dict[str, JsonValue]] = {"maxLength": 0, "maxItems": 0, "maxProperties": 0}
_FILLED: Final[dict[str, JsonValue]] = {"minLength": 1, "minItems": 1, "minProperties": 1}


def at_least_one(*names: str, **empty: JsonValue) -> dict[str, JsonValue]:
    """For ``json_schema_extra`` of a model that needs one of these fields, not empty.

    Where all are empty or left out, editors ask for the first. (Of an ``anyOf`` they would offer each field twice.)

    Args:
        names: of fields.
        empty: further ones, with the schema of what is empty there.
    """
    first, *_ = names
    return {
        "if": {"properties": {**dict.fromkeys(names, _EMPTY), **empty}},
        "then": {"required": [first], "properties": {first: _FILLED}},
    }


def exactly_one(*names: str) -> dict[str, JsonValue]:
    """For ``json_schema_extra`` of a model that needs one of these fields and takes no two."""
    return {"oneOf": [{"required": [name]} for name in names]}
