"""What a model says to editors and to the reference beside its types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import core_schema

if TYPE_CHECKING:
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
    """Annotates a text that must match a pattern, which people are told in words: ``Shape("[a-z]+", "letters")``."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """``patternErrorMessage`` is what VS Code and the YAML language server show."""
        message = f"expected {self.words}"
        return {**handler(core_schema), "pattern": f"^{self.pattern}$", "patternErrorMessage": message}

    def _check(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"expected {self.words}; got {text!r}")
        return text


def at_least_one(*names: str) -> dict[str, JsonValue]:
    """For ``json_schema_extra`` of a model that needs one of these fields."""
    return {"anyOf": [{"required": [name]} for name in names]}


def exactly_one(*names: str) -> dict[str, JsonValue]:
    """For ``json_schema_extra`` of a model that needs one of these fields and takes no two."""
    return {"oneOf": [{"required": [name]} for name in names]}
